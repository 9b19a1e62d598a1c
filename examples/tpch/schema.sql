-- TPC-H, with what dpsql takes domains from: CHECK, NOT NULL, and the FOREIGN KEYs to the customer.

CREATE TYPE segment AS ENUM ('AUTOMOBILE', 'BUILDING', 'FURNITURE', 'HOUSEHOLD', 'MACHINERY');
CREATE TYPE priority AS ENUM ('1-URGENT', '2-HIGH', '3-MEDIUM', '4-NOT SPECIFIED', '5-LOW');
CREATE TYPE instruction AS ENUM ('COLLECT COD', 'DELIVER IN PERSON', 'NONE', 'TAKE BACK RETURN');
CREATE TYPE mode AS ENUM ('AIR', 'FOB', 'MAIL', 'RAIL', 'REG AIR', 'SHIP', 'TRUCK');

-- public
CREATE TABLE region (r_regionkey INTEGER PRIMARY KEY, r_name VARCHAR NOT NULL);
CREATE TABLE nation (
    n_nationkey INTEGER PRIMARY KEY,
    n_name      VARCHAR NOT NULL,
    n_regionkey INTEGER NOT NULL REFERENCES region (r_regionkey)
);
CREATE TABLE supplier (
    s_suppkey   INTEGER PRIMARY KEY,
    s_name      VARCHAR NOT NULL,
    s_nationkey INTEGER NOT NULL REFERENCES nation (n_nationkey)
);
CREATE TABLE part (
    p_partkey     INTEGER PRIMARY KEY,
    p_name        VARCHAR NOT NULL,
    p_brand       VARCHAR NOT NULL,
    p_type        VARCHAR NOT NULL,
    p_size        INTEGER NOT NULL,
    p_container   VARCHAR NOT NULL,
    p_retailprice DECIMAL(15, 2) NOT NULL
);
CREATE TABLE partsupp (
    ps_partkey    INTEGER NOT NULL REFERENCES part (p_partkey),
    ps_suppkey    INTEGER NOT NULL REFERENCES supplier (s_suppkey),
    ps_availqty   INTEGER NOT NULL,
    ps_supplycost DECIMAL(15, 2) NOT NULL,
    PRIMARY KEY (ps_partkey, ps_suppkey)
);

-- private
CREATE TABLE customer (
    c_custkey    INTEGER PRIMARY KEY,
    c_name       VARCHAR NOT NULL,
    c_nationkey  INTEGER NOT NULL CHECK (c_nationkey BETWEEN 0 AND 24),
    c_phone      VARCHAR NOT NULL,
    c_acctbal    DECIMAL(15, 2) NOT NULL CHECK (c_acctbal BETWEEN -999.99 AND 9999.99),
    c_mktsegment segment NOT NULL
);
CREATE TABLE orders (
    o_orderkey      INTEGER PRIMARY KEY,
    o_custkey       INTEGER NOT NULL REFERENCES customer (c_custkey),
    o_orderstatus   VARCHAR NOT NULL CHECK (o_orderstatus IN ('F', 'O', 'P')),
    o_totalprice    DECIMAL(15, 2) NOT NULL CHECK (o_totalprice BETWEEN 0 AND 800000),
    o_orderdate     DATE NOT NULL CHECK (o_orderdate BETWEEN DATE '1992-01-01' AND DATE '1998-08-02'),
    o_orderpriority priority NOT NULL,
    o_shippriority  INTEGER NOT NULL CHECK (o_shippriority = 0),
    o_comment       VARCHAR NOT NULL
);
CREATE TABLE lineitem (
    l_orderkey      INTEGER NOT NULL REFERENCES orders (o_orderkey),
    l_partkey       INTEGER NOT NULL,
    l_suppkey       INTEGER NOT NULL,
    l_linenumber    INTEGER NOT NULL,
    l_quantity      DECIMAL(15, 2) NOT NULL,
    l_extendedprice DECIMAL(15, 2) NOT NULL CHECK (l_extendedprice BETWEEN 900 AND 104950),
    l_discount      DECIMAL(15, 2) NOT NULL,
    l_tax           DECIMAL(15, 2) NOT NULL CHECK (l_tax BETWEEN 0 AND 0.08),
    l_returnflag    VARCHAR NOT NULL CHECK (l_returnflag IN ('A', 'N', 'R')),
    l_linestatus    VARCHAR NOT NULL CHECK (l_linestatus IN ('F', 'O')),
    l_shipdate      DATE NOT NULL CHECK (l_shipdate BETWEEN DATE '1992-01-02' AND DATE '1998-12-01'),
    l_commitdate    DATE NOT NULL,
    l_receiptdate   DATE NOT NULL,
    l_shipinstruct  instruction NOT NULL,
    l_shipmode      mode NOT NULL,
    l_supplycost    DECIMAL(15, 2) NOT NULL CHECK (l_supplycost BETWEEN 1 AND 1000) -- of partsupp
);
