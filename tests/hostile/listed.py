"""The list of hostile inputs that every hub has to bear, each with where it is put to the test. 61 and 62, JWTs and signed
cards, are not spoken here.
"""

from __future__ import annotations

_REQUESTS = "tests/hostile/test_requests.py"
_CONNECTIONS = "tests/hostile/test_connections.py"
_REGISTRY = "tests/hostile/test_registry.py"
_WORKERS = "tests/hostile/test_workers.py"
_NO_JSON = f"{_REQUESTS}::test_what_is_no_json_is_a_parse_error_and_goes_nowhere"
_TOO_LARGE = f"{_REQUESTS}::test_4_and_5_what_is_too_large_is_refused_in_whatever_pieces"
_TOKENS = "tests/acceptance/test_tokens.py"
_GUARD = "tests/unit/outbound/test_webhook_guard.py"
_HOOK = "tests/unit/outbound/test_webhook.py"
_SPELLINGS = f"{_GUARD}::test_no_spelling_of_a_private_address_causes_a_connection"
_HOSTILE_HOOKS = "tests/acceptance/test_push.py::test_hostile_urls_are_refused_by_name_and_nobody_is_called"

NOT_SPOKEN = (61, 62)

LISTED: dict[int, tuple[str, ...]] = {
    1: (_NO_JSON,),
    2: (_NO_JSON,),
    3: (
        f"{_REQUESTS}::test_3_what_is_deep_is_taken_whole_or_refused",
        f"{_REQUESTS}::test_3_what_is_too_deep_is_refused_by_the_settings_name_on_every_binding",
        f"{_REQUESTS}::test_3_brackets_in_a_text_are_not_depth",
    ),
    4: (_TOO_LARGE,),
    5: (_TOO_LARGE,),
    6: (f"{_REQUESTS}::test_6_a_megabyte_of_empty_objects_stalls_nobody",),
    7: (f"{_REQUESTS}::test_7_a_batch_of_ten_thousand_is_refused_as_a_whole",),
    8: (_NO_JSON,),
    9: (_NO_JSON,),
    10: (f"{_REQUESTS}::test_10_of_two_members_of_one_name_everybody_sees_the_last",),
    11: (_NO_JSON,),
    12: (f"{_REQUESTS}::test_12_nul_is_kept_in_texts_and_refused_in_names",),
    13: (
        f"{_REQUESTS}::test_13_an_id_that_cannot_be_one_is_not_repeated",
        f"{_REQUESTS}::test_13_a_large_id_comes_back_as_it_was",
        _NO_JSON,
    ),
    14: (f"{_REQUESTS}::test_14_an_envelope_that_is_none_has_its_code",),
    15: (f"{_REQUESTS}::test_15_what_a_page_may_send_unasked_is_no_request",),
    16: (_NO_JSON,),
    17: (f"{_REQUESTS}::test_17_a_hundred_thousand_keys_stall_nobody",),
    18: (f"{_CONNECTIONS}::test_18_a_length_beside_chunks_is_refused_and_the_line_closed",),
    19: (
        f"{_CONNECTIONS}::test_19_a_head_that_can_be_read_in_two_ways_is_refused",
        "tests/hostile/test_hypercorn.py::test_19_nor_is_one_in_http_2",
        "tests/hostile/test_hypercorn.py::test_19_http_2_is_spoken",
        f"{_CONNECTIONS}::test_19_a_coding_that_is_not_known_is_not_guessed",
    ),
    20: (
        f"{_CONNECTIONS}::test_20_a_head_that_is_too_large_is_refused",
        f"{_CONNECTIONS}::test_20_what_a_browser_or_proxy_adds_is_not_too_much",
    ),
    21: (f"{_CONNECTIONS}::test_21_a_slow_head_is_cut_off",),
    22: (
        f"{_CONNECTIONS}::test_22_a_slow_body_is_cut_off",
        f"{_CONNECTIONS}::test_22_who_is_turned_away_cannot_hold_the_line_either",
    ),
    23: (f"{_CONNECTIONS}::test_23_two_thousand_idle_connections_keep_nobody_out_and_are_closed",),
    24: (
        "tests/acceptance/test_slow_readers.py::test_a_reader_that_was_dropped_keeps_neither_its_line_nor_the_hub",
        "tests/acceptance/test_slow_readers.py::test_readers_that_stop_for_ten_minutes_cost_neither_memory_nor_others_time",
    ),
    25: ("tests/acceptance/test_storms_of_clients.py::test_five_hundred_readers_that_vanish_at_once_stall_nobody",),
    26: (
        f"{_CONNECTIONS}::test_26_another_sites_name_is_misdirected",
        f"{_CONNECTIONS}::test_26_this_machines_names_are_served",
    ),
    27: (f"{_CONNECTIONS}::test_27_a_path_that_leads_out_leads_nowhere",),
    28: (f"{_REQUESTS}::test_28_a_name_that_cannot_be_is_refused_everywhere",),
    29: (f"{_REGISTRY}::test_29_and_30_words_that_are_markup_are_data",),
    30: (f"{_REGISTRY}::test_29_and_30_words_that_are_markup_are_data",),
    31: (f"{_REGISTRY}::test_31_a_card_that_is_too_large_is_refused",),
    32: (f"{_REGISTRY}::test_32_to_enrol_takes_a_token_of_that_role",),
    33: (f"{_REGISTRY}::test_33_a_live_name_stays_with_its_holder",),
    34: (f"{_REGISTRY}::test_34_and_35_an_old_lease_renews_and_revives_nothing",),
    35: (f"{_REGISTRY}::test_34_and_35_an_old_lease_renews_and_revives_nothing",),
    36: (f"{_REGISTRY}::test_36_a_time_is_a_number_within_bounds",),
    37: (f"{_REGISTRY}::test_37_one_token_can_register_so_many_and_takes_nobodys_place",),
    38: (
        f"{_REGISTRY}::test_38_and_40_an_address_that_may_not_be_called_enrols_nobody",
        f"{_REGISTRY}::test_38_a_card_leads_nowhere_else_than_its_workers_own_address",
        f"{_REGISTRY}::test_38_the_networks_of_a_token_are_judged_at_enrolment_and_at_connect",
    ),
    39: (
        f"{_REGISTRY}::test_39_the_hub_is_no_worker_under_any_of_its_names",
        f"{_REGISTRY}::test_39_nor_under_the_name_that_others_call_it_by",
    ),
    40: (f"{_REGISTRY}::test_38_and_40_an_address_that_may_not_be_called_enrols_nobody",),
    41: (f"{_WORKERS}::test_41_a_redirect_is_not_followed",),
    42: (f"{_WORKERS}::test_42_what_is_packed_is_not_unpacked",),
    43: (
        f"{_WORKERS}::test_43_an_answer_without_an_end_is_cut_off",
        f"{_WORKERS}::test_43_a_flood_of_small_events_is_read_at_the_hubs_own_pace",
    ),
    44: (
        f"{_WORKERS}::test_44_one_end_and_nothing_behind_it",
        f"{_WORKERS}::test_44_a_worker_speaks_for_its_own_task_alone",
    ),
    45: (f"{_WORKERS}::test_45_silence_fails_the_task_in_time",),
    46: (
        f"{_WORKERS}::test_46_what_is_no_answer_is_an_invalid_one",
        f"{_WORKERS}::test_46_an_error_that_is_none_is_not_passed_on",
    ),
    47: (_SPELLINGS, _HOSTILE_HOOKS),
    48: (_SPELLINGS, _HOSTILE_HOOKS),
    49: (_SPELLINGS, _HOSTILE_HOOKS),
    50: (_SPELLINGS, _HOSTILE_HOOKS),
    51: (_SPELLINGS, _HOSTILE_HOOKS),
    52: (f"{_GUARD}::test_deceptive_urls_cause_no_connection",),
    53: (f"{_GUARD}::test_public_addresses_are_called_only_on_the_usual_ports",),
    54: (f"{_GUARD}::test_one_private_address_refuses_the_name",),
    55: (
        f"{_GUARD}::test_a_name_that_turns_private_between_set_and_send_is_not_connected_to",
        "tests/flow/push/test_failures.py::test_a_receiver_whose_name_turns_private_is_retried_and_then_given_up",
    ),
    56: (f"{_HOOK}::test_a_redirect_is_not_followed",),
    57: (
        f"{_HOOK}::test_an_endless_answer_is_cut_off_and_its_status_counts",
        f"{_HOOK}::test_a_receiver_that_does_not_answer_in_time_is_a_failure",
    ),
    58: (
        "tests/flow/push/test_configs.py::test_what_could_break_a_head_is_refused_when_it_is_set",
        f"{_HOOK}::test_a_token_with_a_line_break_is_never_sent",
    ),
    59: (f"{_TOKENS}::test_anothers_task_is_unknown_to_the_byte",),
    60: (f"{_REQUESTS}::test_60_a_cursor_that_cannot_be_is_refused_or_ignored",),
    63: (
        f"{_CONNECTIONS}::test_63_another_sites_page_may_not_write_and_is_told_nothing",
        f"{_TOKENS}::test_another_sites_name_and_another_sites_page_are_turned_away",
    ),
    64: (
        f"{_REQUESTS}::test_64_nothing_that_is_said_writes_a_line_of_the_log",
        "tests/unit/telemetry/test_telemetry_log.py::test_control_characters_in_a_message_or_fact_do_not_break_the_line",
    ),
}
