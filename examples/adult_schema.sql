-- Adult (B. Becker and R. Kohavi, 1996, UCI, doi 10.24432/C5XW20, CC BY 4.0).
-- Types and constraints are what makes a domain public: dpsql reads these declarations and never
-- learns a domain from rows. NOT NULL says that NULL needs no group of its own.

CREATE TYPE workclass AS ENUM (
    'Private', 'Self-emp-not-inc', 'Self-emp-inc', 'Federal-gov', 'Local-gov', 'State-gov',
    'Without-pay', 'Never-worked', '?'
);
CREATE TYPE marital_status AS ENUM (
    'Married-civ-spouse', 'Divorced', 'Never-married', 'Separated', 'Widowed',
    'Married-spouse-absent', 'Married-AF-spouse'
);
CREATE TYPE relationship AS ENUM (
    'Wife', 'Own-child', 'Husband', 'Not-in-family', 'Other-relative', 'Unmarried'
);
CREATE TYPE race AS ENUM (
    'White', 'Asian-Pac-Islander', 'Amer-Indian-Eskimo', 'Other', 'Black'
);
CREATE TYPE sex AS ENUM ('Female', 'Male');
CREATE TYPE income AS ENUM ('<=50K', '>50K');

CREATE TABLE adult (
    age            SMALLINT       NOT NULL CHECK (age BETWEEN 16 AND 100),
    workclass      workclass      NOT NULL,
    education_num  SMALLINT       NOT NULL CHECK (education_num BETWEEN 1 AND 16),
    marital_status marital_status NOT NULL,
    relationship   relationship   NOT NULL,
    race           race           NOT NULL,
    sex            sex            NOT NULL,
    hours_per_week SMALLINT       NOT NULL CHECK (hours_per_week BETWEEN 1 AND 99),
    native_country VARCHAR        NOT NULL,  -- no declared domain, so it can't be released
    income         income         NOT NULL
);
