"""Tests that run by default though they take long, by the reason why.

Of those in `REASONS` the quickest case is meant, whatever it takes; of those in `DOORS` all cases
that take less than a second.
"""

from __future__ import annotations

REASONS = {
    "No other default test sees a unit or a row that changes more than is charged.": (
        "engines/test_bounded.py::test_a_unit_adds_at_most_k_rows_and_moves_no_others",
        "engines/test_limits.py::test_another_unit_changes_nothing",
        "engines/test_limits.py::test_counts_change_as_far_as_is_said",
        "engines/test_keys.py::test_a_row_changes_its_own_cell_and_no_other",
        "engines/test_limits.py::test_cells_that_are_counted_together_change_as_far_as_is_said",
        "engines/test_one_pass.py::test_a_row_adds_one_to_one_cell_or_nothing",
        "engines/test_parallel_units.py::test_which_rows_are_kept_of_a_unit_depends_on_no_other_one",
        "engines/test_views.py::test_a_row_below_changes_one_row_above_at_most",
        "measurement/test_differences.py::test_no_unit_costs_more_than_is_charged",
        "release/test_bounds_of_conditions.py::test_no_row_changes_more_than_it_costs",
        "release/test_chosen_rows.py::test_neighbors_differ_by_what_is_charged_where_only_limits_are_declared",
        "release/test_distinct_units.py::test_neighbors_differ_in_noisy_integers_alone_and_as_little_as_is_charged",
        "release/test_factors.py::test_neighbors_differ_by_what_is_charged",
        "release/test_random_databases.py::test_a_unit_takes_its_own_rows_with_it_and_changes_no_others",
        "release/test_rows_behind_cells.py::test_a_neighbor_changes_no_more_than_is_charged",
        "release/test_set_operations_neighbors.py::test_a_removed_unit_takes_along_what_it_says",
        "release/test_spread_out.py::test_so_does_one_with_rows_in_several_tables",
        "release/test_unit_windows.py::test_neighbors_under_limits_differ_by_what_is_charged",
        "release/test_units.py::test_a_person_with_equal_rows_reaches_the_bound",
        "release/test_units.py::test_neighbours_are_as_near_as_was_paid_for",
        "session/test_one_statement.py::test_neighbors_differ_by_what_is_charged",
        "session/test_rows_per_unit.py::test_neighbors_differ_in_noisy_integers_alone_and_as_little_as_is_charged",
    ),
    "No other default test sees noise of a wrong scale there.": (
        "measurement/adaptive/test_guarded.py::test_choices_among_tables_have_the_ratio_that_is_paid_for",
        "measurement/test_measure.py::test_answers_are_unbiased_and_vary_as_stated",
        "measurement/test_narrow.py::test_what_is_kept_is_a_function_of_the_answer_plus_noise",
        "planner/aim/test_grem.py::test_estimates_are_unbiased_and_vary_as_stated",
        "planner/test_against_oracle.py::test_unbiased_with_the_stated_variances_at_the_stated_cost",
        "planner/test_marginals.py::test_answers_are_unbiased_and_vary_as_stated",
        "session/test_mechanisms.py::test_intervals_hold_the_truth",
    ),
    "No other default test ends processes in the middle, or goes for what confines them.": (
        "cli/test_processes.py::test_exit_codes_reach_the_shell",
        "privacy/test_ledger_processes.py::test_kill",
        "session/test_crashes.py::test_interrupts",
        "session/test_first_query.py::test_a_first_query_loads_what_it_needs_and_all_of_it_before_the_charge",
        "sql/test_helper.py::test_ctrl_c_stops_a_statement",
        "sql/test_helper.py::test_memory_has_a_bound",
        "sql/test_helper.py::test_nothing_can_be_reached_once_confined",
        "sql/test_helper.py::test_what_cant_be_stopped_is_killed",
    ),
    "No other default test sees what is forged, unquoted, told by an error or left undone.": (
        "engines/test_interrupts.py::test_no_interrupt_leaves_a_transaction_open_or_a_setting_changed",
        "privacy/test_conversions.py::test_monotonicity",
        "release/test_measurements.py::test_bytes_that_were_changed",
        "rows/test_total.py::test_no_cast_fails_on_any_row",
        "session/test_several_reuse.py::test_a_forged_measurement_of_a_table_alone_is_noticed",
        "sql/test_injection.py::test_texts_of_the_analyst_stay_in_quotes",
    ),
    "Answers of random statements are compared with DuckDB's.": (
        "sql/test_fuzz.py::test_mutated_statements",
        "sql/test_predicates.py::test_random_predicates",
        "sql/test_queries.py::test_random_statements",
        "sql/test_row_queries.py::test_random_row_queries",
    ),
    "No other default test sees that Spark finds other rows, or tells what they hold.": (
        "engines/spark/test_hostile_sessions.py::test_what_fails_for_a_row_is_told_nobody",
        "engines/spark/test_key_scores.py::test_scores_are_those_of_duckdb",
        "engines/spark/test_session.py::test_files_that_changed_have_measurements_of_their_own",
        "engines/spark/test_units.py::test_a_unit_that_goes_takes_its_own_rows_along_and_no_others",
        "engines/spark/test_units.py::test_the_rows_kept_are_those_that_duckdb_keeps",
    ),
    "It looks at every file of the project.": (
        "architecture/test_cpu.py::test_dear_and_slow_tests_exist",
        "architecture/test_structure.py::test_imports_point_down",
        "architecture/test_structure.py::test_tests_share_no_connection",
    ),
}
"""Reason → tests, without their cases."""

DEAR = {f"tests/{name}": reason for reason, names in REASONS.items() for name in names}

DOORS = frozenset(
    f"tests/{name}"
    for name in (
        "engines/test_numbered.py::test_neighbors_differ_in_noisy_integers_alone",
        "engines/test_one_pass.py::test_hostile_values_of_every_domain",
        "rel/test_mutants.py::test_a_wrong_writer_is_found",
        "rel/test_units.py::test_facts_are_true_of_the_rows_of_each_unit",
        "rel/test_units.py::test_rows_are_those_of_each_unit",
        "release/test_combined_rows.py::test_other_joins_are_refused_before_the_charge",
        "release/test_combined_rows.py::test_other_rows_that_meet_are_charged_beside_them",
        "rows/test_functions.py::test_its_values_are_between_its_bounds",
        "rows/test_total.py::test_no_listed_function_fails_on_any_row",
        "session/test_attached.py::test_no_way_to_a_table_gives_it_a_fresh_budget",
        "session/test_files.py::test_changes_before_the_charge_cost_nothing",
        "session/test_opened.py::test_a_line_that_is_no_row_is_told_of_before_the_charge_and_without_a_word_of_it",
        "session/test_sessions.py::test_interrupts_by_phase",
    )
)
"""Each case is a way of its own past an account, a bound or a guard, which others don't see."""
