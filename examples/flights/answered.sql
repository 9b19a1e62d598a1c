-- Statements over flights that are answered, each to be planned by itself.

-- name: all_flights
SELECT COUNT(*) AS n FROM flights;
-- name: by_carrier
SELECT carrier, COUNT(*) AS n FROM flights GROUP BY carrier;
-- name: by_origin
SELECT origin, COUNT(*) AS n FROM flights GROUP BY origin ORDER BY n DESC;
-- name: by_month
SELECT month, COUNT(*) AS n FROM flights GROUP BY month ORDER BY month;
-- name: by_hour
SELECT hour, COUNT(*) AS n FROM flights GROUP BY hour;
-- name: by_month_and_origin
SELECT month, origin, COUNT(*) AS n FROM flights GROUP BY ALL;
-- name: by_carrier_and_origin
SELECT carrier, origin, COUNT(*) AS n FROM flights GROUP BY carrier, origin;
-- name: by_carrier_and_destination
SELECT carrier, dest, COUNT(*) AS n FROM flights GROUP BY carrier, dest;
-- name: routes
SELECT origin, dest, COUNT(*) AS n FROM flights GROUP BY ALL HAVING COUNT(*) > 1000 ORDER BY n DESC;
-- name: top_destinations
SELECT dest, COUNT(*) AS n FROM flights GROUP BY dest ORDER BY n DESC LIMIT 10;
-- name: by_day
SELECT month, day, COUNT(*) AS n FROM flights GROUP BY month, day;
-- name: by_date
SELECT time_hour::DATE AS date, COUNT(*) AS n FROM flights GROUP BY date ORDER BY date;
-- name: hour_of_a_day
SELECT extract(hour FROM time_hour) AS h, COUNT(*) AS n FROM flights GROUP BY h;
-- name: by_weekday
SELECT dayname(time_hour) AS weekday, COUNT(*) AS n FROM flights GROUP BY weekday;
-- name: by_week
SELECT date_trunc('week', time_hour) AS week, COUNT(*) AS n FROM flights GROUP BY week;
-- name: by_quarter
SELECT quarter(time_hour) AS quarter, origin, COUNT(*) AS n FROM flights GROUP BY ALL;
-- name: first_half
SELECT origin, COUNT(*) AS n FROM flights WHERE time_hour < DATE '2013-07-01' GROUP BY origin;
-- name: by_day_first_half
SELECT time_hour::DATE AS date, COUNT(*) AS n, AVG(arr_delay) AS d FROM flights
WHERE time_hour < DATE '2013-07-01' GROUP BY date;
-- name: morning
SELECT COUNT(*) AS n FROM flights WHERE hour BETWEEN 5 AND 9;
-- name: parts_of_day
SELECT CASE WHEN hour < 12 THEN 'morning' WHEN hour < 18 THEN 'afternoon' ELSE 'evening' END AS part,
    COUNT(*) AS n
FROM flights GROUP BY part;
-- name: delayed
SELECT COUNT(*) AS n FROM flights WHERE dep_delay > 15;
-- name: cancelled
SELECT COUNT(*) AS n FROM flights WHERE dep_time IS NULL;
-- name: cancelled_by_carrier
SELECT carrier, 100.0 * COUNT_IF(dep_time IS NULL) / COUNT(*) AS percent FROM flights GROUP BY carrier;
-- name: share_by_origin
SELECT origin, 100.0 * COUNT_IF(dep_delay > 15) / COUNT(*) AS percent FROM flights GROUP BY origin;
-- name: share_of_all
SELECT carrier, COUNT(*) / SUM(COUNT(*)) OVER () AS share FROM flights GROUP BY carrier;
-- name: mean_delay
SELECT AVG(dep_delay) AS d FROM flights;
-- name: mean_delay_by_carrier
SELECT carrier, AVG(dep_delay) AS d FROM flights GROUP BY carrier;
-- name: count_and_mean_by_carrier
SELECT carrier, COUNT(*) AS n, AVG(arr_delay) AS d FROM flights GROUP BY carrier;
-- name: count_and_mean_by_destination
SELECT dest, COUNT(*) AS n, AVG(arr_delay) AS d FROM flights GROUP BY dest;
-- name: all_but_one_destination
SELECT dest, COUNT(*) AS n, AVG(arr_delay) AS d FROM flights WHERE dest <> 'ATL' GROUP BY dest;
-- name: count_and_mean_by_carrier_and_destination
SELECT carrier, dest, COUNT(*) AS n, AVG(arr_delay) AS d FROM flights GROUP BY ALL;
-- name: month_and_hour
SELECT month, hour, COUNT(*) AS n, AVG(dep_delay) AS d FROM flights
WHERE hour BETWEEN 5 AND 23 GROUP BY ALL;
-- name: both_delays
SELECT carrier, AVG(dep_delay) AS dep, AVG(arr_delay) AS arr FROM flights GROUP BY carrier;
-- name: delay_moments
SELECT AVG(dep_delay) AS mean, STDDEV(dep_delay) AS sd, COUNT(dep_delay) AS n FROM flights;
-- name: variance_by_origin
SELECT origin, VAR_POP(arr_delay) AS v FROM flights GROUP BY origin;
-- name: sum_of_distance
SELECT SUM(distance) AS miles FROM flights;
-- name: miles_by_carrier
SELECT carrier, SUM(distance) AS miles FROM flights GROUP BY carrier ORDER BY miles DESC;
-- name: mean_distance
SELECT origin, AVG(distance) AS miles FROM flights GROUP BY origin;
-- name: distance_moments
SELECT AVG(distance) AS mean, STDDEV(distance) AS sd FROM flights;
-- name: speed
SELECT SUM(distance) / SUM(air_time) * 60 AS mph FROM flights;
-- name: air_time_by_month
SELECT month, AVG(air_time) AS minutes, COUNT(air_time) AS n FROM flights GROUP BY month;
-- name: mean_gain
SELECT carrier, AVG(dep_delay - arr_delay) AS gain FROM flights GROUP BY carrier;
-- name: gain_from_means
SELECT carrier, AVG(dep_delay) - AVG(arr_delay) AS gain FROM flights GROUP BY carrier;
-- name: made_up_time
SELECT COUNT(*) AS n FROM flights WHERE arr_delay < dep_delay;
-- name: on_time
SELECT origin, COUNT(*) FILTER (WHERE arr_delay <= 0) AS on_time, COUNT(*) AS n
FROM flights GROUP BY origin;
-- name: median_delay
SELECT MEDIAN(dep_delay) AS m FROM flights;
-- name: median_by_origin
SELECT origin, MEDIAN(arr_delay) AS m FROM flights GROUP BY origin;
-- name: ninth_decile
SELECT origin, QUANTILE_CONT(dep_delay, 0.9) AS p90 FROM flights GROUP BY origin;
-- name: quartiles
SELECT QUANTILE_DISC(arr_delay, 0.25) AS low, QUANTILE_DISC(arr_delay, 0.75) AS high FROM flights;
-- name: percentile_within_group
SELECT PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY dep_delay) AS m FROM flights;
-- name: mean_and_median_by_carrier
SELECT carrier, AVG(dep_delay) AS mean, MEDIAN(dep_delay) AS median FROM flights GROUP BY carrier;
-- name: median_air_time
SELECT carrier, MEDIAN(air_time) AS m FROM flights GROUP BY carrier;
-- name: median_departure
SELECT MEDIAN(hour) AS m FROM flights;
-- name: delay_histogram
SELECT dep_delay // 15 * 15 AS bin, COUNT(*) AS n FROM flights
WHERE dep_delay BETWEEN 0 AND 119 GROUP BY bin ORDER BY bin;
-- name: delay_bands
SELECT b.band, COUNT(*) AS n FROM flights
JOIN (VALUES ('early', -60, -1), ('late', 0, 59), ('very late', 60, 300)) AS b(band, low, high)
    ON dep_delay BETWEEN b.low AND b.high
GROUP BY b.band;
-- name: running_total_by_month
SELECT month, SUM(COUNT(*)) OVER (ORDER BY month) AS up_to FROM flights GROUP BY month;
-- name: running_total_by_date
SELECT time_hour::DATE AS date, SUM(COUNT(*)) OVER (ORDER BY time_hour::DATE) AS up_to
FROM flights GROUP BY date;
-- name: moving_average
SELECT month, AVG(COUNT(*)) OVER (ORDER BY month ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS smooth
FROM flights GROUP BY month;
-- name: cumulative_delay
SELECT dep_delay, SUM(COUNT(*)) OVER (ORDER BY dep_delay) AS up_to FROM flights
WHERE dep_delay IS NOT NULL GROUP BY dep_delay;
-- name: month_before
SELECT month, COUNT(*) AS n, COUNT(*) - LAG(COUNT(*)) OVER (ORDER BY month) AS change
FROM flights GROUP BY month;
-- name: rank_of_carriers
SELECT carrier, COUNT(*) AS n, rank() OVER (ORDER BY COUNT(*) DESC) AS place
FROM flights GROUP BY carrier;
-- name: best_by_origin
SELECT origin, carrier, COUNT(*) AS n FROM flights GROUP BY origin, carrier
QUALIFY row_number() OVER (PARTITION BY origin ORDER BY COUNT(*) DESC) <= 3;
-- name: rollup
SELECT origin, carrier, COUNT(*) AS n FROM flights GROUP BY ROLLUP (origin, carrier);
-- name: cube
SELECT origin, month, COUNT(*) AS n FROM flights GROUP BY CUBE (origin, month);
-- name: grouping_sets
SELECT origin, hour, COUNT(*) AS n FROM flights GROUP BY GROUPING SETS ((origin), (hour), ());
-- name: airline_names
SELECT a.name, COUNT(*) AS n FROM flights f JOIN airlines a ON f.carrier = a.carrier GROUP BY a.name;
-- name: airline_names_mean
SELECT a.name, COUNT(*) AS n, AVG(dep_delay) AS d FROM flights JOIN airlines a USING (carrier)
GROUP BY a.name;
-- name: airport_names
SELECT a.name, COUNT(*) AS n, AVG(arr_delay) AS d FROM flights f JOIN airports a ON f.dest = a.faa
GROUP BY a.name;
-- name: airport_names_left
SELECT a.name, COUNT(*) AS n, AVG(arr_delay) AS d FROM flights f
LEFT JOIN airports a ON f.dest = a.faa GROUP BY a.name;
-- name: time_zones
SELECT a.tzone, COUNT(*) AS n FROM flights f JOIN airports a ON f.dest = a.faa GROUP BY a.tzone;
-- name: northern
SELECT COUNT(*) AS n FROM flights WHERE dest IN (SELECT faa FROM airports WHERE lat > 41);
-- name: unknown_airports
SELECT dest, COUNT(*) AS n FROM flights f ANTI JOIN airports a ON f.dest = a.faa GROUP BY dest;
-- name: manufacturers
SELECT p.manufacturer, COUNT(*) AS n, AVG(arr_delay) AS d FROM flights f
JOIN planes p ON f.tailnum = p.tailnum GROUP BY p.manufacturer;
-- name: engines
SELECT p.engines, COUNT(*) AS n FROM flights f JOIN planes p USING (tailnum) GROUP BY p.engines;
-- name: seats
SELECT SUM(p.seats) AS seats FROM flights f JOIN planes p USING (tailnum);
-- name: seats_by_carrier
SELECT carrier, AVG(p.seats) AS seats FROM flights f JOIN planes p USING (tailnum) GROUP BY carrier;
-- name: age_of_planes
SELECT carrier, AVG(2013 - p.year) AS age FROM flights f JOIN planes p USING (tailnum) GROUP BY carrier;
-- name: by_plane
SELECT tailnum, COUNT(*) AS n FROM flights GROUP BY tailnum ORDER BY n DESC LIMIT 10;
-- name: by_known_plane
SELECT tailnum, COUNT(*) AS n FROM flights WHERE tailnum IS NOT NULL GROUP BY tailnum
ORDER BY n DESC LIMIT 10;
-- name: mean_by_plane
SELECT tailnum, AVG(arr_delay) AS d, COUNT(*) AS n FROM flights GROUP BY tailnum
ORDER BY n DESC LIMIT 10;
-- name: flight_numbers
SELECT flight, COUNT(*) AS n FROM flights WHERE flight < 5000 GROUP BY flight ORDER BY n DESC LIMIT 10;
-- name: minutes
SELECT minute, COUNT(*) AS n FROM flights GROUP BY minute ORDER BY n DESC;
-- name: scheduled_quarter_hours
SELECT minute // 15 AS quarter, COUNT(*) AS n FROM flights GROUP BY quarter;
-- name: dates_put_together
SELECT TRY_CAST(year || '-' || month || '-' || day AS DATE) AS date, COUNT(*) AS n
FROM flights GROUP BY date;
-- name: summer
SELECT month IN (6, 7, 8) AS summer, AVG(dep_delay) AS d, COUNT(*) AS n FROM flights GROUP BY summer;
-- name: weekend
SELECT dayofweek(time_hour) IN (0, 6) AS weekend, COUNT(*) AS n, AVG(arr_delay) AS d
FROM flights GROUP BY weekend;
-- name: carriers_of_new_york
SELECT carrier, COUNT_IF(origin = 'JFK') AS jfk, COUNT_IF(origin = 'LGA') AS lga,
    COUNT_IF(origin = 'EWR') AS ewr
FROM flights GROUP BY carrier;
-- name: carriers_by_size
WITH c AS (SELECT carrier, COUNT(*) AS n FROM flights GROUP BY carrier)
SELECT CASE WHEN n > 20000 THEN 'large' ELSE 'small' END AS size, SUM(n) AS flights FROM c GROUP BY size;
-- name: mean_flights_per_month
SELECT AVG(n) AS flights FROM (SELECT month, COUNT(*) AS n FROM flights GROUP BY month);
-- name: busiest_month
SELECT month, n FROM (SELECT month, COUNT(*) AS n FROM flights GROUP BY month) ORDER BY n DESC LIMIT 1;
-- name: months_over_average
WITH m AS (SELECT month, COUNT(*) AS n FROM flights GROUP BY month)
SELECT month, n FROM m WHERE n > (SELECT AVG(n) FROM m) ORDER BY month;
-- name: two_counts_side_by_side
WITH early AS (SELECT carrier, COUNT(*) AS n FROM flights WHERE month <= 6 GROUP BY carrier),
    late AS (SELECT carrier, COUNT(*) AS n FROM flights WHERE month > 6 GROUP BY carrier)
SELECT early.carrier, early.n AS early, late.n AS late FROM early JOIN late USING (carrier);
-- name: union_of_ends
SELECT 'first' AS half, COUNT(*) AS n FROM flights WHERE month <= 6
UNION ALL SELECT 'second', COUNT(*) FROM flights WHERE month > 6;
-- name: names_of_noisy_carriers
SELECT a.name, c.n FROM (SELECT carrier, COUNT(*) AS n FROM flights GROUP BY carrier) c
JOIN airlines a ON c.carrier = a.carrier ORDER BY c.n DESC;
-- name: pattern
SELECT COUNT(*) AS n FROM flights WHERE dest LIKE 'S%';
-- name: upper_and_substring
SELECT upper(substring(dest, 1, 1)) AS letter, COUNT(*) AS n FROM flights GROUP BY letter;
-- name: concatenated
SELECT origin || '-' || carrier AS pair, COUNT(*) AS n FROM flights GROUP BY pair;
-- name: coalesced
SELECT COALESCE(dep_delay, 0) > 0 AS late, COUNT(*) AS n FROM flights GROUP BY late;
-- name: filled_mean
SELECT origin, AVG(COALESCE(arr_delay, 0)) AS d FROM flights GROUP BY origin;
-- name: capped_sum
SELECT origin, SUM(LEAST(dep_delay, 60)) AS minutes FROM flights GROUP BY origin;
-- name: long_delays_of_evenings
SELECT carrier, COUNT(*) AS n FROM flights WHERE hour >= 18 AND dep_delay >= 60 GROUP BY carrier;
-- name: counted_columns
SELECT COUNT(dep_time) AS departed, COUNT(air_time) AS flown, COUNT(*) AS n FROM flights;
-- name: hundreds_of_miles
SELECT distance // 100 AS hundred, COUNT(*) AS n FROM flights GROUP BY hundred;
-- name: far
SELECT origin, COUNT(*) AS n FROM flights WHERE distance > 1000 GROUP BY origin;
-- name: departed_by_scheduled_hour
SELECT sched_dep_time // 100 AS hour, COUNT_IF(dep_delay <= 0) AS punctual FROM flights GROUP BY 1;
-- name: christmas
SELECT time_hour::DATE AS date, COUNT(*) AS n FROM flights
WHERE time_hour >= DATE '2013-12-20' AND time_hour < DATE '2013-12-27' GROUP BY date;
-- name: month_names
SELECT monthname(time_hour) AS name, COUNT(*) AS n FROM flights GROUP BY name;
-- name: weighted_delay
SELECT carrier, SUM(dep_delay) / COUNT(dep_delay) AS d FROM flights GROUP BY carrier;
-- name: share_with_total
SELECT origin, COUNT(*) AS n, 100.0 * COUNT(*) / SUM(COUNT(*)) OVER () AS percent
FROM flights GROUP BY origin;
-- name: root_of_count
SELECT origin, sqrt(COUNT(*)) AS root FROM flights GROUP BY origin;
-- name: count_and_mean_of_routes
SELECT origin, dest, carrier, COUNT(*) AS n, AVG(arr_delay) AS d FROM flights
GROUP BY ALL HAVING COUNT(*) > 1000;
-- name: to_the_north
SELECT COUNT(*) AS n FROM flights f WHERE EXISTS (SELECT 1 FROM airports a WHERE a.faa = f.dest AND a.lat > 40);
-- name: carriers
SELECT DISTINCT carrier FROM flights;
-- name: longest_delays
WITH late AS (SELECT *, dep_delay // 60 AS hours FROM flights WHERE dep_delay > 60)
SELECT origin, COUNT(*) AS n, MAX(hours) AS longest FROM late GROUP BY origin;
-- name: correlation
SELECT origin, corr(dep_delay, arr_delay) AS r FROM flights GROUP BY origin;
