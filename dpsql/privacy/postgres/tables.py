"""Ledgers on a server, and the rights of its roles: tables, functions, grants. Trusted.

All of it is in a schema `dpsql` of one database, and belongs to the role that created it, the
owner. Lines are written by functions that run with the owner's rights, so that other roles need no
right to write. The server computes what it can: the number of a line, its hash, and the sums.

Guarantees:
    Against every role but the owner and superusers,

    1. Lines and contents are only ever appended, each with the next number and the hash of its
       text after the line before. (Triggers keep the owner from anything else by mistake.)
    2. What was spent is the exact sum of all charges, as a fraction, and never above the total:
       a CHECK of integers; of μ² and of δ, each by itself. Only the owner fixes the total, creates
       and binds.
    3. A request is charged once; after that, it fails and is retried at most once, is released at
       most once and not between the two, and is delivered at most once after that. What is kept
       for a release has the digest that its line says.
    4. Lines are of one ledger in one order: whoever writes holds the lock on the ledger's row, and
       numbers are a primary key.
    5. What is kept is bounded: each line, each content, and all of a ledger together.

Not defended: who may append can append what is no event, whereupon everybody refuses the ledger;
can hold its lock; and can commit without waiting for the disk. Nothing of that brings budget back
to anybody whose charges are acknowledged to a dpsql. But who may append can also append that a
charge failed whose answers were handed out and could not be kept, and which is not noted as
released therefore: it pays for a second release then, once.
"""

from __future__ import annotations

from dpsql.privacy.event import FORMAT

LAYOUT = 2
"""The version of these tables."""
BEFORE = 1
"""The version that `UPGRADE` goes on from: it had no sum of δ."""
MAX_CONTENT = 2**26
"""The most bytes that are kept of one release."""
MAX_LINE = 2**20
"""The most characters of one event."""
MAX_LEDGER = 2**34
"""The most bytes of all events and contents of a ledger."""

_FRACTION = "^[1-9][0-9]*/[1-9][0-9]*$"
_DIGITS = 4000
_STATES = "'charged', 'failed', 'retried', 'released', 'delivered'"

_TABLES = f"""
CREATE SCHEMA dpsql;

CREATE TABLE dpsql.layout (version integer NOT NULL);
INSERT INTO dpsql.layout VALUES ({LAYOUT});

CREATE TABLE dpsql.ledger (
    ledger text PRIMARY KEY CHECK (ledger ~ '^[0-9a-f]{{32}}$'),
    format integer NOT NULL CHECK (format = {FORMAT}),
    dataset text NOT NULL UNIQUE CHECK (length(dataset) BETWEEN 1 AND 1000),
    seq bigint NOT NULL DEFAULT 0,
    hash text NOT NULL CHECK (hash ~ '^[0-9a-f]{{64}}$'),
    spent_over numeric NOT NULL DEFAULT 0,
    spent_under numeric NOT NULL DEFAULT 1,
    total_over numeric,
    total_under numeric,
    kept bigint NOT NULL DEFAULT 0,
    CONSTRAINT spent_is_exact CHECK (
        spent_over >= 0 AND scale(spent_over) = 0 AND spent_under > 0 AND scale(spent_under) = 0
        AND length(spent_over::text) <= {_DIGITS} AND length(spent_under::text) <= {_DIGITS}),
    CONSTRAINT total_is_exact CHECK (
        (total_over IS NULL) = (total_under IS NULL)
        AND total_over >= 0 AND scale(total_over) = 0
        AND total_under > 0 AND scale(total_under) = 0),
    CONSTRAINT within_total CHECK (spent_over * total_under <= total_over * spent_under),
    CONSTRAINT bounded CHECK (kept BETWEEN 0 AND {MAX_LEDGER})
);

CREATE TABLE dpsql.chain (
    ledger text NOT NULL REFERENCES dpsql.ledger,
    seq bigint NOT NULL,
    event text NOT NULL CHECK (length(event) <= {MAX_LINE} AND event ~ '^[ -~]*$'),
    hash text NOT NULL,
    kind text NOT NULL,
    request text NOT NULL,
    PRIMARY KEY (ledger, seq)
);

CREATE TABLE dpsql.measurement (
    ledger text NOT NULL,
    seq bigint NOT NULL,
    content bytea NOT NULL CHECK (octet_length(content) <= {MAX_CONTENT}),
    stored timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (ledger, seq),
    FOREIGN KEY (ledger, seq) REFERENCES dpsql.chain
);

CREATE TABLE dpsql.binding (
    uid text PRIMARY KEY CHECK (uid ~ '^[0-9a-f]{{32,128}}$'),
    ledger text NOT NULL REFERENCES dpsql.ledger
);
"""

_ONCE = f"""
CREATE UNIQUE INDEX chain_once ON dpsql.chain (ledger, request, kind) WHERE kind IN ({_STATES});
"""

_DELTA = f"""
ALTER TABLE dpsql.ledger
    ADD COLUMN spent_delta_over numeric NOT NULL DEFAULT 0,
    ADD COLUMN spent_delta_under numeric NOT NULL DEFAULT 1,
    ADD COLUMN total_delta_over numeric NOT NULL DEFAULT 0,
    ADD COLUMN total_delta_under numeric NOT NULL DEFAULT 1,
    ADD CONSTRAINT delta_is_exact CHECK (
        spent_delta_over >= 0 AND scale(spent_delta_over) = 0
        AND spent_delta_under > 0 AND scale(spent_delta_under) = 0
        AND total_delta_over >= 0 AND scale(total_delta_over) = 0
        AND total_delta_under > 0 AND scale(total_delta_under) = 0
        AND length(spent_delta_over::text) <= {_DIGITS}
        AND length(spent_delta_under::text) <= {_DIGITS}),
    ADD CONSTRAINT delta_within_total CHECK (total_over IS NULL
        OR spent_delta_over * total_delta_under <= total_delta_over * spent_delta_under);
"""

_GUARD = """
CREATE OR REPLACE FUNCTION dpsql.only_appended() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND TG_TABLE_NAME = 'ledger' AND TG_LEVEL = 'ROW' THEN
        IF (NEW.ledger, NEW.format, NEW.dataset, NEW.seq)
                IS NOT DISTINCT FROM (OLD.ledger, OLD.format, OLD.dataset, OLD.seq + 1)
            AND NEW.kept > OLD.kept
            AND NEW.spent_over * OLD.spent_under >= OLD.spent_over * NEW.spent_under
            AND NEW.spent_delta_over * OLD.spent_delta_under
                >= OLD.spent_delta_over * NEW.spent_delta_under
            AND (OLD.total_over IS NULL
                OR (NEW.total_over, NEW.total_under, NEW.total_delta_over, NEW.total_delta_under)
                IS NOT DISTINCT FROM
                (OLD.total_over, OLD.total_under, OLD.total_delta_over, OLD.total_delta_under))
        THEN
            RETURN NEW;
        END IF;
    END IF;
    RAISE EXCEPTION 'a ledger is only appended to' USING ERRCODE = 'DP001';
END $$;
"""

_TRIGGERS = """
CREATE TRIGGER ledger_update BEFORE UPDATE ON dpsql.ledger
    FOR EACH ROW EXECUTE FUNCTION dpsql.only_appended();
CREATE TRIGGER ledger_fixed BEFORE DELETE OR TRUNCATE ON dpsql.ledger
    FOR EACH STATEMENT EXECUTE FUNCTION dpsql.only_appended();
""" + "".join(
    f"""CREATE TRIGGER {table}_fixed BEFORE UPDATE OR DELETE OR TRUNCATE ON dpsql.{table}
    FOR EACH STATEMENT EXECUTE FUNCTION dpsql.only_appended();
"""
    for table in ("chain", "measurement", "binding", "layout")
)

_DEFINER = "LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp"

_FUNCTIONS = f"""
CREATE OR REPLACE FUNCTION dpsql.locked(wanted text)
    RETURNS TABLE (seq bigint, hash text, "time" timestamptz) {_DEFINER} AS $$
BEGIN
    RETURN QUERY SELECT found.seq, found.hash, clock_timestamp()
        FROM dpsql.ledger AS found WHERE found.ledger = wanted FOR UPDATE;
END $$;

CREATE OR REPLACE FUNCTION dpsql.plus(before numeric[], amount text)
    RETURNS numeric[] {_DEFINER} AS $$
DECLARE
    "over" numeric;
    under numeric;
    common numeric;
BEGIN
    IF amount IS NULL OR amount !~ '{_FRACTION}'
        OR greatest(length(split_part(amount, '/', 1)), length(split_part(amount, '/', 2)))
            > {_DIGITS}
    THEN
        RAISE EXCEPTION 'this is no amount' USING ERRCODE = 'DP001';
    END IF;
    under := split_part(amount, '/', 2)::numeric;
    "over" := before[1] * under + split_part(amount, '/', 1)::numeric * before[2];
    under := before[2] * under;
    common := gcd("over", under);
    RETURN ARRAY[div("over", common), div(under, common)];
END $$;

CREATE OR REPLACE FUNCTION dpsql.write(wanted text, number bigint, event text, content bytea)
    RETURNS text {_DEFINER} AS $$
DECLARE
    head dpsql.ledger;
    said jsonb;
    kind text;
    request text;
    amount text;
    aside text;
    digest text;
    state text;
    now_is numeric[];
    link text;
BEGIN
    SELECT * INTO STRICT head FROM dpsql.ledger AS found WHERE found.ledger = wanted FOR UPDATE;
    said := event::jsonb;
    kind := said ->> 'kind';
    request := coalesce(said ->> 'request', '');
    amount := said #>> '{{amounts,mu_squared,*}}';
    aside := said #>> '{{amounts,delta}}';
    digest := coalesce(said ->> 'content', '');
    SELECT c.kind INTO state FROM dpsql.chain AS c
        WHERE (c.ledger, c.request) = (wanted, said ->> 'request') AND c.kind IN ({_STATES})
        ORDER BY c.seq DESC LIMIT 1;
    IF number <> head.seq + 1
        OR (said -> 'format') IS DISTINCT FROM '{FORMAT}'::jsonb
        OR kind IS NULL
        OR (kind, coalesce(state, '')) NOT IN (('total', ''), ('bound', ''), ('charged', ''),
            ('failed', 'charged'), ('retried', 'failed'), ('released', 'charged'),
            ('released', 'retried'), ('delivered', 'released'))
        OR (kind = 'total') <> (request = '')
        OR (kind IN ('total', 'charged')) <> (said ? 'amounts')
        OR (digest <> '' AND kind <> 'released')
        OR (digest <> '') <> (content IS NOT NULL)
        OR (content IS NOT NULL AND encode(sha256(content), 'hex') <> digest)
    THEN
        RAISE EXCEPTION 'this does not follow' USING ERRCODE = 'DP001';
    END IF;
    IF said ? 'amounts' AND (said -> 'amounts') IS DISTINCT FROM
        jsonb_build_object('mu_squared', jsonb_build_object('*', amount))
        || (CASE WHEN aside IS NULL THEN '{{}}' ELSE jsonb_build_object('delta', aside) END)
    THEN
        RAISE EXCEPTION 'this is no amount' USING ERRCODE = 'DP001';
    END IF;
    IF kind = 'charged' THEN
        now_is := dpsql.plus(ARRAY[head.spent_over, head.spent_under], amount);
        head.spent_over := now_is[1];
        head.spent_under := now_is[2];
        IF aside IS NOT NULL THEN
            now_is := dpsql.plus(ARRAY[head.spent_delta_over, head.spent_delta_under], aside);
            head.spent_delta_over := now_is[1];
            head.spent_delta_under := now_is[2];
        END IF;
    ELSIF kind = 'total' THEN
        IF head.total_over IS NOT NULL THEN
            RAISE EXCEPTION 'there is a total' USING ERRCODE = 'DP001';
        END IF;
        now_is := dpsql.plus(ARRAY[0, 1], amount);
        head.total_over := now_is[1];
        head.total_under := now_is[2];
        IF aside IS NOT NULL THEN
            now_is := dpsql.plus(ARRAY[0, 1], aside);
            head.total_delta_over := now_is[1];
            head.total_delta_under := now_is[2];
        END IF;
    END IF;
    link := encode(sha256(convert_to(
        '["' || head.hash || '",' || number || ',' || to_json(event)::text || ']', 'UTF8')), 'hex');
    UPDATE dpsql.ledger AS l SET seq = number, hash = link,
            spent_over = head.spent_over, spent_under = head.spent_under,
            total_over = head.total_over, total_under = head.total_under,
            spent_delta_over = head.spent_delta_over, spent_delta_under = head.spent_delta_under,
            total_delta_over = head.total_delta_over, total_delta_under = head.total_delta_under,
            kept = l.kept + octet_length(event) + coalesce(octet_length(content), 0)
        WHERE l.ledger = wanted;
    INSERT INTO dpsql.chain VALUES (wanted, number, event, link, kind, request);
    IF content IS NOT NULL THEN
        INSERT INTO dpsql.measurement VALUES (wanted, number, content);
    END IF;
    RETURN link;
END $$;

CREATE OR REPLACE FUNCTION dpsql.append(wanted text, number bigint, event text, content bytea)
    RETURNS text {_DEFINER} AS $$
BEGIN
    IF (event::jsonb ->> 'kind') IS NOT DISTINCT FROM 'total' THEN
        RAISE EXCEPTION 'only the owner fixes a total' USING ERRCODE = '42501';
    END IF;
    RETURN dpsql.write(wanted, number, event, content);
END $$;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA dpsql FROM PUBLIC;
"""

DDL = _TABLES + _ONCE + _DELTA + _GUARD + _TRIGGERS + _FUNCTIONS
"""Made at once, by whoever becomes the owner."""

UPGRADE = f"""DROP INDEX dpsql.chain_once;{_ONCE}{_DELTA}{_GUARD}{_FUNCTIONS}
ALTER TABLE dpsql.layout DISABLE TRIGGER layout_fixed;
UPDATE dpsql.layout SET version = {LAYOUT};
ALTER TABLE dpsql.layout ENABLE TRIGGER layout_fixed;
"""
"""Makes tables of the version before those of this one, in one transaction, by the owner."""

GRANTS = """CREATE ROLE dpsql_auditor NOLOGIN;
CREATE ROLE dpsql_analyst NOLOGIN;
GRANT USAGE ON SCHEMA dpsql TO dpsql_auditor, dpsql_analyst;
GRANT SELECT ON ALL TABLES IN SCHEMA dpsql TO dpsql_auditor, dpsql_analyst;
GRANT EXECUTE ON FUNCTION dpsql.locked(text) TO dpsql_analyst;
GRANT EXECUTE ON FUNCTION dpsql.append(text, bigint, text, bytea) TO dpsql_analyst;
"""
"""Rights that the owner grants to others; roles are of the whole server, so they are not made
unasked."""
