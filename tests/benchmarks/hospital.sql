-- What the analyst of a hospital asks, as it came to mind; tests/benchmarks/hospital.py asks it.

-- name: admissions_by_ward
SELECT ward, COUNT(*) AS n FROM admissions GROUP BY ward ORDER BY n DESC;
-- name: stay_by_ward
SELECT ward, AVG(date_diff('hour', admitted, discharged)) / 24 AS days FROM admissions GROUP BY ward;
-- name: stay_by_ward_and_month
SELECT ward, date_trunc('month', admitted) AS month, AVG(date_diff('day', admitted, discharged)) AS days
FROM admissions GROUP BY ward, month ORDER BY ward, month;
-- name: stay_in_days_by_epoch
SELECT ward, AVG(EXTRACT(epoch FROM discharged - admitted) / 86400) AS days FROM admissions GROUP BY ward;
-- name: median_stay
SELECT ward, MEDIAN(date_diff('hour', admitted, discharged)) AS hours FROM admissions GROUP BY ward;
-- name: long_stays
SELECT COUNT(*) AS n FROM admissions WHERE discharged - admitted > INTERVAL 7 DAY;
-- name: still_here
SELECT ward, COUNT(*) AS n FROM admissions WHERE discharged IS NULL GROUP BY ward;
-- name: busiest_hour
SELECT hour(admitted) AS h, COUNT(*) AS n FROM admissions GROUP BY h ORDER BY n DESC LIMIT 1;
-- name: by_weekday
SELECT dayname(admitted) AS day, COUNT(*) AS n FROM admissions GROUP BY day ORDER BY n DESC;
-- name: distinct_patients_by_ward
SELECT ward, COUNT(DISTINCT patient_id) AS patients FROM admissions GROUP BY ward;
-- name: admissions_per_patient
SELECT COUNT(*) / COUNT(DISTINCT patient_id) AS per_patient FROM admissions;
-- name: average_per_patient
SELECT AVG(n) AS mean FROM (SELECT patient_id, COUNT(*) AS n FROM admissions GROUP BY patient_id);
-- name: frequent_patients
SELECT COUNT(*) AS patients FROM (SELECT patient_id FROM admissions GROUP BY patient_id HAVING COUNT(*) >= 3);
-- name: readmitted_by_window
SELECT COUNT(*) AS readmitted FROM (
    SELECT admitted, LAG(discharged) OVER (PARTITION BY patient_id ORDER BY admitted) AS before FROM admissions
) WHERE date_diff('day', before, admitted) BETWEEN 0 AND 30;
-- name: readmitted_share_by_ward
SELECT ward, AVG(CASE WHEN next - discharged <= INTERVAL 30 DAY THEN 1.0 ELSE 0 END) AS share FROM (
    SELECT ward, discharged, LEAD(admitted) OVER (PARTITION BY patient_id ORDER BY admitted) AS next FROM admissions
) GROUP BY ward;
-- name: readmitted_by_exists
SELECT COUNT(*) AS n FROM admissions a WHERE EXISTS (
    SELECT 1 FROM admissions b WHERE b.patient_id = a.patient_id AND b.admitted > a.discharged
    AND b.admitted <= a.discharged + INTERVAL 30 DAY);
-- name: emergencies_by_month
SELECT strftime(admitted, '%Y-%m') AS month, AVG(emergency::INT) AS share FROM admissions GROUP BY month ORDER BY month;
-- name: cost_by_ward_name
SELECT ward_name, SUM(cost) AS cost, AVG(cost) AS mean FROM admissions JOIN wards USING (ward) GROUP BY ward_name;
-- name: ninetieth_percentile_of_cost
SELECT ward, quantile_cont(cost, 0.9) AS p90 FROM admissions GROUP BY ward;
-- name: top_diagnoses
SELECT code, COUNT(*) AS n FROM diagnoses GROUP BY code ORDER BY n DESC LIMIT 10;
-- name: top_diagnoses_by_patients
SELECT d.code, COUNT(DISTINCT a.patient_id) AS patients FROM diagnoses d JOIN admissions a USING (admission_id)
GROUP BY d.code ORDER BY patients DESC LIMIT 10;
-- name: chapters
SELECT left(code, 1) AS chapter, COUNT(*) AS n FROM diagnoses WHERE main GROUP BY chapter ORDER BY n DESC;
-- name: share_with_hypertension
SELECT AVG(CASE WHEN EXISTS (SELECT 1 FROM admissions a JOIN diagnoses d USING (admission_id)
    WHERE a.patient_id = p.patient_id AND d.code LIKE 'I10%') THEN 1 ELSE 0 END) AS share FROM patients p;
-- name: share_with_diabetes
SELECT 100.0 * COUNT(DISTINCT CASE WHEN d.code LIKE 'E11%' THEN a.patient_id END) / COUNT(DISTINCT a.patient_id) AS percent
FROM admissions a LEFT JOIN diagnoses d ON d.admission_id = a.admission_id;
-- name: without_diagnosis
SELECT COUNT(*) AS n FROM admissions a LEFT JOIN diagnoses d ON d.admission_id = a.admission_id
WHERE d.admission_id IS NULL;
-- name: diagnoses_per_admission
SELECT ward, COUNT(d.diagnosis_id) / COUNT(DISTINCT a.admission_id) AS per_admission
FROM admissions a LEFT JOIN diagnoses d ON a.admission_id = d.admission_id GROUP BY ward;
-- name: age_at_admission
SELECT ward, AVG(date_diff('year', p.birth_date, a.admitted)) AS age
FROM admissions a JOIN patients p USING (patient_id) GROUP BY ward;
-- name: admissions_by_age_band_and_sex
SELECT CASE WHEN age < 18 THEN '0-17' WHEN age < 40 THEN '18-39' WHEN age < 65 THEN '40-64' ELSE '65+' END AS band, sex,
    COUNT(*) AS n
FROM (SELECT sex, year(admitted) - year(birth_date) AS age FROM admissions JOIN patients USING (patient_id))
GROUP BY band, sex ORDER BY band, sex;
-- name: median_labs_by_sex_and_age
SELECT sex, (2024 - year(birth_date)) // 20 * 20 AS age, MEDIAN(value) AS creatinine
FROM labs JOIN patients USING (patient_id) WHERE test = 'creatinine' GROUP BY ALL ORDER BY ALL;
-- name: mean_labs
SELECT test, COUNT(*) AS n, AVG(value) AS mean, STDDEV(value) AS deviation FROM labs GROUP BY test;
-- name: low_sodium
SELECT 100.0 * SUM(CASE WHEN value < 135 THEN 1 ELSE 0 END) / COUNT(*) AS percent FROM labs WHERE test = 'sodium';
-- name: last_creatinine
SELECT AVG(value) AS mean FROM (
    SELECT *, ROW_NUMBER() OVER (PARTITION BY patient_id ORDER BY taken DESC) AS r FROM labs WHERE test = 'creatinine'
) WHERE r = 1;
-- name: bmi_by_sex
SELECT sex, AVG(weight_kg / (height_cm / 100) ^ 2) AS bmi FROM patients GROUP BY sex;
-- name: smokers_by_insurance
SELECT insurance, AVG(smoker) AS smokers, COUNT(*) AS n FROM patients GROUP BY insurance;
-- name: mortality
SELECT sex, COUNT(death_date) * 100.0 / COUNT(*) AS percent FROM patients GROUP BY sex;
-- name: busiest_ward_each_month
SELECT date_trunc('month', admitted) AS month, ward, COUNT(*) AS n FROM admissions GROUP BY month, ward
QUALIFY ROW_NUMBER() OVER (PARTITION BY month ORDER BY n DESC, ward) = 1 ORDER BY month;
