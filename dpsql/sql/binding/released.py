"""Values of all units' rows in a statement: what releases each, and what stands there then.

    SELECT COUNT(*) FROM loan WHERE amount > (SELECT AVG(amount) FROM loan)

asks rows of several units which row counts, and what was released of them may decide that. An error
says which statement that is. What it returns is written where the error marks the text, and the
statement is about public values then.
"""

from __future__ import annotations

from sqlglot import exp

from dpsql.errors import UnsupportedSqlError
from dpsql.hints import Hint, never
from dpsql.schema.names import folded, quoted_name
from dpsql.sql.binding.expressions import Expr, render
from dpsql.sql.text.spans import SourceText


def value_alone(node: Expr, root: Expr, source: SourceText) -> str | None:
    """Write the statement that returns the value of a subquery, if it may be one of no row.

    Args:
        node: the subquery.
        root: the statement that it is in.
        source: the text of that.
    """
    if not isinstance(node, exp.Subquery) or not isinstance(node.this, exp.Select):
        return None
    return _alone(f"SELECT {source.text(source.node(node))} AS value", node, root)


def noisy_item(item: Expr, root: Expr, source: SourceText) -> UnsupportedSqlError:
    """Say that an item after FROM has noisy answers, and return the statement that releases them.

    Args:
        item: the item.
        root: the statement that it is in.
        source: the text of that.
    """
    error = source.unsupported(
        item,
        "Noisy answers can't be joined with private rows.",
        never(
            "a statement has either private rows or noisy answers in one FROM. Join two noisy "
            "answers: WITH a AS (SELECT …), b AS (SELECT …) SELECT … FROM a JOIN b USING (sex); or "
            "release what is to be joined by itself, and make it a public table, "
        )
        + Hint('public={"chosen": frame}.', "--public chosen."),
    )
    if isinstance(item, exp.Subquery | exp.Table):
        alias, name = item.args.get("alias"), item.name if isinstance(item, exp.Table) else ""
        called = render(alias) if alias is not None else name and quoted_name(name)
        error.value, error.behind = answers_of(item, root, source), called and f" AS {called}"
    return error


def answers_of(node: Expr, root: Expr, source: SourceText) -> str | None:
    """Write the statement that returns the answers of a query in another one, if there is one."""
    return _alone(f"SELECT * FROM {source.text(source.node(node))}", node, root)


def _alone(text: str, node: Expr, root: Expr) -> str | None:
    """Write a statement with the CTEs of another one, if a part of that needs them.

    None if it may need one of a query within that.
    """
    clause = root.args.get("with_")
    named = clause.expressions if clause is not None else ()
    inner = [cte for cte in root.find_all(exp.CTE) if not any(cte is one for one in named)]
    used = {folded(table.name) for table in node.find_all(exp.Table)}
    own = {id(cte) for cte in node.find_all(exp.CTE)}
    if any(folded(cte.alias) in used and id(cte) not in own for cte in inner):
        return None
    uses = any(folded(cte.alias) in used for cte in named)
    return f"{render(clause)} {text}" if clause is not None and uses else text
