-- A release of the Adult census extract: all statements are planned jointly and measured once.

-- name: by_sex
SELECT sex, COUNT(*) AS people FROM adult GROUP BY sex;

-- name: by_education
SELECT education_num, COUNT(*) AS people FROM adult GROUP BY education_num;

-- name: workclass_by_sex
SELECT workclass, sex, COUNT(*) AS people FROM adult GROUP BY workclass, sex;

-- name: race_by_marital_status_by_income
SELECT race, marital_status, income, COUNT(*) AS people
FROM adult
GROUP BY race, marital_status, income;

-- name: age_distribution
SELECT age, SUM(COUNT(*)) OVER (ORDER BY age) AS people_up_to
FROM adult
GROUP BY age;

-- name: age_bands_by_sex
SELECT b.band, sex, COUNT(*) AS people
FROM adult
JOIN (VALUES ('18 to 29', 18, 29), ('30 to 54', 30, 54), ('55 or older', 55, 100)) AS b(band, lo, hi)
    ON age BETWEEN b.lo AND b.hi
GROUP BY b.band, sex;

-- name: hours
SELECT sex, AVG(hours_per_week) AS mean, MEDIAN(hours_per_week) AS median
FROM adult
GROUP BY sex;

-- name: high_incomes
SELECT education_num, 100.0 * COUNT_IF(income = '>50K') / COUNT(*) AS percent
FROM adult
GROUP BY education_num
HAVING COUNT(*) > 500
ORDER BY percent DESC
LIMIT 5;

-- name: light_load
SELECT COUNT(*) AS people FROM adult WHERE hours_per_week + 2 * education_num <= 50;

-- name: balanced_load_by_income
SELECT income, COUNT(*) AS people
FROM adult
WHERE ABS(hours_per_week - age) <= 5
GROUP BY income;

-- name: graduates_outside_full_time
SELECT sex, COUNT(*) AS people
FROM adult
WHERE education_num >= 13 AND NOT (hours_per_week BETWEEN 35 AND 45)
GROUP BY sex;
