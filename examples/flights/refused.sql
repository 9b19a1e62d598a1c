-- Statements over flights that are refused, each before anything is charged.

-- name: largest_three
SELECT MAX(dep_delay, 3) AS m FROM flights;
-- name: distinct_planes
SELECT COUNT(DISTINCT tailnum) AS n FROM flights;
-- name: rows_themselves
SELECT carrier, flight FROM flights WHERE dep_delay > 200;
-- name: impossible_dates
SELECT make_date(year, month, day) AS d, COUNT(*) AS n FROM flights GROUP BY d;
-- name: rows_before
SELECT dep_delay - LAG(dep_delay) OVER (ORDER BY time_hour) AS d FROM flights;
-- name: correlated
SELECT COUNT(*) AS n FROM flights f WHERE EXISTS (SELECT 1 FROM flights g WHERE g.origin = f.dest AND g.day = f.day);
-- name: skew
SELECT skewness(dep_delay) AS s FROM flights;
-- name: pivoted
PIVOT flights ON origin USING COUNT(*);
-- name: now
SELECT COUNT(*) AS n FROM flights WHERE time_hour < now();
-- name: backticks
SELECT `carrier`, COUNT(*) AS n FROM flights GROUP BY 1;
-- name: list_of_quantiles
SELECT QUANTILE_CONT(dep_delay, [0.25, 0.5]) AS q FROM flights;
