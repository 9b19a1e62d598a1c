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

-- name: young_adults_by_sex
SELECT sex, COUNT(*) AS people FROM adult WHERE age BETWEEN 18 AND 29 GROUP BY sex;

-- name: prime_age_by_sex
SELECT sex, COUNT(*) AS people FROM adult WHERE age BETWEEN 30 AND 54 GROUP BY sex;

-- name: older_adults_by_sex
SELECT sex, COUNT(*) AS people FROM adult WHERE age >= 55 GROUP BY sex;

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
