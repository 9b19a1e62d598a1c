-- Rows with the distributions of TPC-H's specification (4.2.3), made of hashes: the same every time.
-- The names in braces are numbers of rows.

CREATE OR REPLACE TEMP MACRO pick(i, salt, n) AS (hash(64 * i::BIGINT + salt) % n)::INTEGER;
CREATE OR REPLACE TEMP MACRO color(i, salt) AS [
    'almond', 'azure', 'beige', 'blue', 'brown', 'coral', 'cyan', 'forest', 'gold', 'green', 'ivory',
    'khaki', 'lime', 'maroon', 'navy', 'olive', 'peach', 'plum', 'red', 'rose', 'salmon', 'sky', 'tan'
][1 + pick(i, salt, 23)];
CREATE OR REPLACE TEMP MACRO supplier_of(part, i) AS
    (part + i * ({suppliers} // 4 + (part - 1) // {suppliers})) % {suppliers} + 1;
CREATE OR REPLACE TEMP MACRO supply_cost(part, i) AS
    ((100 + pick(4 * part + i, 15, 99901)) / 100)::DECIMAL(15, 2);

INSERT INTO region VALUES (0, 'AFRICA'), (1, 'AMERICA'), (2, 'ASIA'), (3, 'EUROPE'), (4, 'MIDDLE EAST');
INSERT INTO nation VALUES
    (0, 'ALGERIA', 0), (1, 'ARGENTINA', 1), (2, 'BRAZIL', 1), (3, 'CANADA', 1), (4, 'EGYPT', 4),
    (5, 'ETHIOPIA', 0), (6, 'FRANCE', 3), (7, 'GERMANY', 3), (8, 'INDIA', 2), (9, 'INDONESIA', 2),
    (10, 'IRAN', 4), (11, 'IRAQ', 4), (12, 'JAPAN', 2), (13, 'JORDAN', 4), (14, 'KENYA', 0),
    (15, 'MOROCCO', 0), (16, 'MOZAMBIQUE', 0), (17, 'PERU', 1), (18, 'CHINA', 2), (19, 'ROMANIA', 3),
    (20, 'SAUDI ARABIA', 4), (21, 'VIETNAM', 2), (22, 'RUSSIA', 3), (23, 'UNITED KINGDOM', 3),
    (24, 'UNITED STATES', 1);
INSERT INTO supplier
    SELECT i, format('Supplier#{{:09d}}', i), pick(i, 1, 25) FROM range(1, {suppliers} + 1) AS r(i);
INSERT INTO part
    SELECT i, concat_ws(' ', color(i, 1), color(i, 2), color(i, 3), color(i, 4), color(i, 5)),
        'Brand#' || (1 + pick(i, 6, 5)) || (1 + pick(i, 7, 5)),
        ['STANDARD', 'SMALL', 'MEDIUM', 'LARGE', 'ECONOMY', 'PROMO'][1 + pick(i, 8, 6)] || ' '
            || ['ANODIZED', 'BURNISHED', 'PLATED', 'POLISHED', 'BRUSHED'][1 + pick(i, 9, 5)] || ' '
            || ['TIN', 'NICKEL', 'BRASS', 'STEEL', 'COPPER'][1 + pick(i, 10, 5)],
        1 + pick(i, 11, 50),
        ['SM', 'LG', 'MED', 'JUMBO', 'WRAP'][1 + pick(i, 12, 5)] || ' '
            || ['CASE', 'BOX', 'BAG', 'JAR', 'PKG', 'PACK', 'CAN', 'DRUM'][1 + pick(i, 13, 8)],
        (90000 + i // 10 % 20001 + 100 * (i % 1000)) / 100
    FROM range(1, {parts} + 1) AS r(i);
INSERT INTO partsupp
    SELECT i, supplier_of(i, j), 1 + pick(4 * i + j, 14, 9999), supply_cost(i, j)
    FROM range(1, {parts} + 1) AS r(i), range(4) AS s(j);

INSERT INTO customer
    SELECT i, format('Customer#{{:09d}}', i), pick(i, 20, 25),
        format('{{}}-{{:03d}}-{{:03d}}-{{:04d}}', 10 + pick(i, 20, 25), 100 + pick(i, 21, 900),
            100 + pick(i, 22, 900), 1000 + pick(i, 23, 9000)),
        (pick(i, 24, 1099999) - 99999) / 100,
        ['AUTOMOBILE', 'BUILDING', 'FURNITURE', 'HOUSEHOLD', 'MACHINERY'][1 + pick(i, 25, 5)]
    FROM range(1, {customers} + 1) AS r(i);

-- A third of the customers have no order, and an order has one to seven lines.
CREATE TEMP TABLE ordered AS
    SELECT i AS key, 1 + pick(i, 30, {customers} // 3) * 3 + pick(i, 31, 2) AS customer,
        DATE '1992-01-01' + pick(i, 32, 2406) AS day
    FROM range(1, {orders} + 1) AS r(i);
CREATE TEMP TABLE lines AS
    WITH placed AS (
        SELECT key, line, day, 8 * key + line AS i, 1 + pick(8 * key + line, 40, {parts}) AS part,
            1 + pick(8 * key + line, 41, 50) AS quantity
        FROM ordered, range(1, 8) AS s(line) WHERE line <= 1 + pick(key, 33, 7)
    ), shipped AS (
        SELECT *, day + 1 + pick(i, 42, 121) AS ship, day + 30 + pick(i, 43, 61) AS due FROM placed
    )
    SELECT *, ship + 1 + pick(i, 44, 30) AS receipt,
        (quantity * (90000 + part // 10 % 20001 + 100 * (part % 1000)) / 100)::DECIMAL(15, 2) AS price,
        (pick(i, 45, 11) / 100)::DECIMAL(15, 2) AS discount, (pick(i, 46, 9) / 100)::DECIMAL(15, 2) AS tax,
        CASE WHEN ship > DATE '1995-06-17' THEN 'O' ELSE 'F' END AS status
    FROM shipped;
INSERT INTO orders
    SELECT o.key, o.customer, CASE WHEN t.first = t.last THEN t.first ELSE 'P' END, t.price, o.day,
        ['1-URGENT', '2-HIGH', '3-MEDIUM', '4-NOT SPECIFIED', '5-LOW'][1 + pick(o.key, 34, 5)], 0,
        CASE WHEN pick(o.key, 35, 80) = 0 THEN 'about special ironic requests' ELSE 'quickly final deposits' END
    FROM ordered AS o JOIN (
        SELECT key, min(status) AS first, max(status) AS last,
            sum(price * (1 - discount) * (1 + tax)) AS price
        FROM lines GROUP BY key
    ) AS t ON t.key = o.key;
INSERT INTO lineitem
    SELECT key, part, supplier_of(part, pick(i, 47, 4)), line, quantity, price, discount, tax,
        CASE WHEN receipt > DATE '1995-06-17' THEN 'N' WHEN pick(i, 48, 2) = 0 THEN 'R' ELSE 'A' END,
        status, ship, due, receipt,
        ['COLLECT COD', 'DELIVER IN PERSON', 'NONE', 'TAKE BACK RETURN'][1 + pick(i, 49, 4)],
        ['AIR', 'FOB', 'MAIL', 'RAIL', 'REG AIR', 'SHIP', 'TRUCK'][1 + pick(i, 50, 7)],
        supply_cost(part, pick(i, 47, 4))
    FROM lines;
DROP TABLE lines;
DROP TABLE ordered;
