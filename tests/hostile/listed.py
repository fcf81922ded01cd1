"""The list of hostile inputs, each with its tests. 61 and 62, JWTs and signed cards, are not supported here."""

from __future__ import annotations

_REQUESTS = "tests/hostile/test_requests.py"
_CONNECTIONS = "tests/hostile/test_connections.py"
_REGISTRY = "tests/hostile/test_registry.py"
_WORKERS = "tests/hostile/test_workers.py"
_NO_JSON = f"{_REQUESTS}::test_invalid_json_is_a_parse_error_and_is_not_forwarded"
_TOO_LARGE = f"{_REQUESTS}::test_4_and_5_a_body_that_is_too_large_is_refused_in_any_framing"
_TOKENS = "tests/acceptance/test_tokens.py"
_GUARD = "tests/unit/outbound/test_webhook_guard.py"
_HOOK = "tests/unit/outbound/test_webhook.py"
_NOT_PUBLIC = f"{_GUARD}::test_no_spelling_of_a_private_address_causes_a_connection"
_REFUSED_HOOKS = "tests/acceptance/test_push.py::test_forbidden_urls_are_refused_without_a_connection"

NOT_SUPPORTED = (61, 62)

TESTS_BY_INPUT: dict[int, tuple[str, ...]] = {
    1: (_NO_JSON,),
    2: (_NO_JSON,),
    3: (
        f"{_REQUESTS}::test_3_deep_json_is_accepted_completely_or_refused",
        f"{_REQUESTS}::test_3_the_error_for_depth_names_the_setting_on_every_binding",
        f"{_REQUESTS}::test_3_brackets_in_a_text_do_not_count_as_depth",
    ),
    4: (_TOO_LARGE,),
    5: (_TOO_LARGE,),
    6: (f"{_REQUESTS}::test_6_a_megabyte_of_empty_objects_stalls_nobody",),
    7: (f"{_REQUESTS}::test_7_a_batch_of_ten_thousand_is_refused_as_a_whole",),
    8: (_NO_JSON,),
    9: (_NO_JSON,),
    10: (f"{_REQUESTS}::test_10_the_last_of_two_equal_members_counts",),
    11: (_NO_JSON,),
    12: (f"{_REQUESTS}::test_12_nul_is_kept_in_texts_and_refused_in_names",),
    13: (
        f"{_REQUESTS}::test_13_an_invalid_id_is_not_repeated",
        f"{_REQUESTS}::test_13_a_large_id_is_returned_unchanged",
        _NO_JSON,
    ),
    14: (f"{_REQUESTS}::test_14_an_invalid_request_has_its_code",),
    15: (f"{_REQUESTS}::test_15_media_types_without_preflight_are_refused",),
    16: (_NO_JSON,),
    17: (f"{_REQUESTS}::test_17_a_hundred_thousand_keys_stall_nobody",),
    18: (f"{_CONNECTIONS}::test_18_a_length_beside_chunks_is_refused_and_the_connection_closed",),
    19: (
        f"{_CONNECTIONS}::test_19_an_ambiguous_head_is_refused",
        "tests/hostile/test_http_2.py::test_19_a_malformed_head_in_http_2_is_refused",
        "tests/hostile/test_http_2.py::test_19_http_2_is_supported",
        f"{_CONNECTIONS}::test_19_an_unknown_transfer_coding_is_refused",
    ),
    20: (
        f"{_CONNECTIONS}::test_20_a_head_that_is_too_large_is_refused",
        f"{_CONNECTIONS}::test_20_the_headers_of_browsers_and_proxies_are_accepted",
    ),
    21: (f"{_CONNECTIONS}::test_21_a_slow_head_is_cut_off",),
    22: (
        f"{_CONNECTIONS}::test_22_a_slow_body_is_cut_off",
        f"{_CONNECTIONS}::test_22_a_refused_request_cannot_hold_its_connection_either",
    ),
    23: (f"{_CONNECTIONS}::test_23_two_thousand_idle_connections_block_no_other_and_are_closed",),
    24: (
        "tests/acceptance/test_slow_readers.py::test_a_dropped_reader_keeps_no_connection_and_does_not_delay_a_stop",
        "tests/acceptance/test_slow_readers.py::test_readers_that_stop_for_ten_minutes_cost_neither_memory_nor_latency",
    ),
    25: (
        "tests/acceptance/test_storms_of_clients.py::test_five_hundred_readers_that_disconnect_at_once_delay_no_other_caller",
    ),
    26: (
        f"{_CONNECTIONS}::test_26_a_foreign_host_is_refused",
        f"{_CONNECTIONS}::test_26_this_machines_hosts_are_served",
    ),
    27: (f"{_CONNECTIONS}::test_27_path_traversal_is_refused",),
    28: (f"{_REQUESTS}::test_28_an_invalid_name_is_refused_everywhere",),
    29: (f"{_REGISTRY}::test_29_and_30_markup_is_data",),
    30: (f"{_REGISTRY}::test_29_and_30_markup_is_data",),
    31: (f"{_REGISTRY}::test_31_a_card_that_is_too_large_is_refused",),
    32: (f"{_REGISTRY}::test_32_enrolling_needs_a_token_for_the_role",),
    33: (f"{_REGISTRY}::test_33_a_live_name_stays_with_its_holder",),
    34: (f"{_REGISTRY}::test_34_and_35_an_old_lease_neither_renews_nor_revives",),
    35: (f"{_REGISTRY}::test_34_and_35_an_old_lease_neither_renews_nor_revives",),
    36: (f"{_REGISTRY}::test_36_a_ttl_is_a_number_within_limits",),
    37: (f"{_REGISTRY}::test_37_one_token_has_a_limit_of_workers_and_does_not_affect_others",),
    38: (
        f"{_REGISTRY}::test_38_and_40_a_forbidden_url_cannot_enrol",
        f"{_REGISTRY}::test_38_urls_in_a_card_are_not_called",
        f"{_REGISTRY}::test_38_the_networks_of_a_token_are_checked_at_enrolment_and_at_connect",
    ),
    39: (
        f"{_REGISTRY}::test_39_the_hub_cannot_enrol_itself_under_any_of_its_names",
        f"{_REGISTRY}::test_39_the_hub_cannot_enrol_itself_under_its_public_name",
    ),
    40: (f"{_REGISTRY}::test_38_and_40_a_forbidden_url_cannot_enrol",),
    41: (f"{_WORKERS}::test_41_a_redirect_is_not_followed",),
    42: (f"{_WORKERS}::test_42_a_compressed_answer_is_refused",),
    43: (
        f"{_WORKERS}::test_43_an_endless_answer_is_cut_off",
        f"{_WORKERS}::test_43_a_flood_of_small_events_does_not_stall_the_hub",
    ),
    44: (
        f"{_WORKERS}::test_44_events_after_the_end_are_dropped",
        f"{_WORKERS}::test_44_a_worker_can_change_only_its_own_task",
    ),
    45: (f"{_WORKERS}::test_45_silence_fails_the_task_in_time",),
    46: (
        f"{_WORKERS}::test_46_a_malformed_answer_is_an_invalid_one",
        f"{_WORKERS}::test_46_a_malformed_error_is_not_passed_on",
    ),
    47: (_NOT_PUBLIC, _REFUSED_HOOKS),
    48: (_NOT_PUBLIC, _REFUSED_HOOKS),
    49: (_NOT_PUBLIC, _REFUSED_HOOKS),
    50: (_NOT_PUBLIC, _REFUSED_HOOKS),
    51: (_NOT_PUBLIC, _REFUSED_HOOKS),
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
        "tests/flow/push/test_configs.py::test_values_that_would_break_a_header_are_refused",
        f"{_HOOK}::test_a_token_with_a_line_break_is_never_sent",
    ),
    59: (f"{_TOKENS}::test_a_foreign_task_gets_the_same_bytes_as_an_unknown_one",),
    60: (f"{_REQUESTS}::test_60_an_invalid_cursor_is_refused_or_ignored",),
    63: (
        f"{_CONNECTIONS}::test_63_a_cross_site_page_may_neither_write_nor_read",
        f"{_TOKENS}::test_a_foreign_host_name_and_a_cross_site_request_are_refused",
    ),
    64: (
        f"{_REQUESTS}::test_64_no_input_forges_a_line_of_the_log",
        "tests/unit/telemetry/test_telemetry_log.py::test_control_characters_in_a_message_or_fact_do_not_break_the_line",
    ),
}
