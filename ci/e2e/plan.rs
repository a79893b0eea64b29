//! The steps, from cheap to dear.

use crate::arguments::Selection;
use crate::guests::matrix;
use crate::{
    attach, caches, commands, configuration, counters, demo, diagnostics, doorbells, ends, ethernet, guest_memory,
    guests, idle, kill, link, machines, measuring, output, outside, pci, rxe_peer, second_driver, serve, sharing,
    simulation, thousand, verbs, watch, workbench,
};
use std::time::Duration;

/// One step: a function that panics when something is not as it should be.
#[derive(Clone, Copy)]
pub struct Step {
    /// Theme and sentence.
    pub name: &'static str,
    pub limit: Duration,
    pub run: fn(),
}

/// What most steps stay far below on an idle machine.
const LIMIT_S: u64 = 120;
/// The first step may have to fetch all packages over a slow network and build the image.
const PROVISION_LIMIT_S: u64 = 3600;

/// Steps that have an image of their own.
const PYVERBS: [&str; 2] = ["guests::rdma_cores_own_tests_pass", "guests::the_provider_for_the_newer_rdma_core_works"];

macro_rules! steps {
    ($($theme:ident :: $name:ident within $limit_s:expr;)*) => {
        vec![$(Step {
            name: concat!(stringify!($theme), "::", stringify!($name)),
            // Some kernels of guests take their time.
            limit: Duration::from_secs($limit_s) * guests::patience(),
            run: $theme::$name,
        },)*]
    };
}

/// What the chosen steps find in the cache: these run before them, whatever is chosen.
pub fn provision(chosen: &[Step]) -> Vec<Step> {
    let limit = Duration::from_secs(PROVISION_LIMIT_S) * guests::patience();
    let mut steps = vec![Step { name: "laboratory::is_provided", limit, run: crate::bench::laboratory::is_provided }];
    if chosen.iter().any(|step| step.name.starts_with("guests::") || step.name.starts_with("matrix::")) {
        steps.push(Step { name: "guests::the_rdma_image_is_provided", limit, run: guests::the_rdma_image_is_provided });
    }
    if chosen.iter().any(|step| PYVERBS.contains(&step.name) || step.name.starts_with("rxe_peer::")) {
        let run = guests::the_image_with_rdma_cores_tests_is_provided;
        steps.push(Step { name: "guests::the_image_with_rdma_cores_tests_is_provided", limit, run });
    }
    steps
}

/// Those that are asked for, to be chosen from.
pub fn of(selection: &Selection) -> Vec<Step> {
    if selection.ignored { matrix() } else { steps() }
}

/// What ordinary runs leave out. The last one wants a kernel that looks for faults.
pub fn matrix() -> Vec<Step> {
    steps! {
        matrix::perftest_in_all_sizes within 5 * LIMIT_S;
        matrix::perftest_with_other_queues within 5 * LIMIT_S;
        matrix::connections_by_address within 5 * LIMIT_S;
        matrix::qperf_s_rdma_tests within 5 * LIMIT_S;
        guests::planted_faults_are_found within LIMIT_S;
    }
}

pub fn steps() -> Vec<Step> {
    steps! {
        simulation::known_and_fixed_seeds_keep_every_rule_and_exercise_every_item within 5 * LIMIT_S;
        simulation::fresh_seeds_keep_every_rule within LIMIT_S;
        demo::the_known_totals_over_model_hosts within LIMIT_S;
        demo::the_table_of_operations_and_modes within LIMIT_S;
        demo::the_table_of_operations_that_fetch within LIMIT_S;
        demo::golden_wire_bytes within LIMIT_S;
        demo::a_line_is_one_write_and_is_seen_as_eight_stores within LIMIT_S;
        demo::cold_caches_add_fetches_and_nothing_else within LIMIT_S;
        demo::a_refused_key_is_a_nak_and_an_error_and_touches_nothing within LIMIT_S;
        demo::the_dashed_branch_is_told_in_full within LIMIT_S;
        demo::a_lost_packet_is_read_and_sent_again within LIMIT_S;
        demo::a_lost_response_is_fetched_again within LIMIT_S;
        demo::the_exit_number_says_what_went_wrong within LIMIT_S;
        demo::a_missing_or_old_qemu_is_told_in_one_sentence within LIMIT_S;
        demo::the_help_names_what_the_environment_decides within LIMIT_S;
        demo::kvm_is_proved_before_it_is_used within LIMIT_S;
        demo::model_hosts_take_less_than_two_seconds within LIMIT_S;
        output::a_standard_error_that_cannot_be_written_changes_no_exit_number within LIMIT_S;
        output::an_answer_that_cannot_be_written_is_a_failure within LIMIT_S;
        output::a_capture_in_a_pipe_leaves_the_report_to_standard_error within LIMIT_S;
        output::a_server_captures_into_a_pipe_and_tells_its_sockets_elsewhere within LIMIT_S;
        output::the_bring_up_is_told_with_pages_keys_and_attributes within LIMIT_S;
        output::progress_is_told_on_a_terminal_alone within LIMIT_S;
        doorbells::a_torn_line_counts_as_single_stores_and_the_work_is_done within LIMIT_S;
        link::frames_are_lost_while_the_link_is_down_and_the_driver_is_told_of_both_changes within LIMIT_S;
        measuring::the_bench_verifies_its_data_and_its_ledgers_add_up within 2 * LIMIT_S;
        measuring::the_bench_tells_the_cost_among_many_objects_beside_the_cost_among_few within LIMIT_S;
        measuring::the_bench_measures_busy_polling_beside_the_usual_way within LIMIT_S;
        measuring::the_bench_measures_what_it_is_asked_for_and_refuses_the_rest within LIMIT_S;
        verbs::an_extended_connection_reaches_the_queue_that_each_request_names within LIMIT_S;
        verbs::a_window_shows_a_part_of_its_region_until_it_is_invalidated within LIMIT_S;
        verbs::a_fast_region_gets_its_memory_from_a_work_request_and_the_peer_takes_it_back within LIMIT_S;
        verbs::a_region_changes_in_place_and_a_refused_change_changes_nothing within LIMIT_S;
        verbs::a_completion_queue_is_resized_under_traffic within LIMIT_S;
        verbs::events_are_held_back_as_moderation_says within LIMIT_S;
        verbs::two_queue_pairs_of_one_adapter_reach_each_other within LIMIT_S;
        caches::two_queue_pairs_in_turn_with_a_cache_of_one_fetch_a_context_an_operation_a_side within LIMIT_S;
        outside::scapy_and_tshark_read_every_packet_of_the_demo_as_we_do within LIMIT_S;
        outside::scapy_and_tshark_read_every_packet_of_other_transactions_as_we_do within LIMIT_S;
        outside::scapy_and_tshark_read_marks_and_notifications_as_we_do within LIMIT_S;
        outside::a_thousand_packets_of_scapy_parse_and_a_flipped_bit_is_dropped_and_counted within LIMIT_S;
        serve::it_listens_soon_and_a_signal_ends_it_cleanly within LIMIT_S;
        serve::a_killed_server_leaves_sockets_that_the_next_one_takes_over within LIMIT_S;
        watch::totals_between_marks_are_those_of_the_story within LIMIT_S;
        watch::the_trace_tells_crossings_and_packets_in_their_order within LIMIT_S;
        watch::a_followed_trace_goes_on_until_its_server_goes within LIMIT_S;
        watch::live_objects_show_their_state_and_looking_crosses_nothing within LIMIT_S;
        watch::servers_are_found_by_name_and_the_dead_are_told_from_the_living within LIMIT_S;
        watch::hostile_messages_leave_the_server_unharmed within LIMIT_S;
        watch::an_interrupt_with_a_guest_attached_warns_and_waits within LIMIT_S;
        diagnostics::every_rule_that_is_broken_over_a_live_socket_is_an_event within LIMIT_S;
        diagnostics::the_number_stands_everywhere_a_driver_looks within LIMIT_S;
        diagnostics::a_strict_server_stops_its_adapter_at_a_warning within LIMIT_S;
        serve::its_capture_holds_every_packet_and_their_icrc_is_right within LIMIT_S;
        machines::the_whole_transaction_in_process_and_over_the_socket within LIMIT_S;
        commands::a_number_is_explained_and_an_unknown_one_leads_to_the_nearest within LIMIT_S;
        commands::the_cache_is_listed_and_cleaned_and_locks_are_respected within LIMIT_S;
        configuration::what_it_prints_it_reads_back_as_the_same within LIMIT_S;
        configuration::the_adapters_are_as_they_are_described within LIMIT_S;
        configuration::the_switch_loses_what_it_is_told_to_lose within LIMIT_S;
        configuration::a_thread_that_never_sleeps_serves_its_clients within LIMIT_S;
        configuration::a_mistake_is_told_with_its_line_and_its_cure within LIMIT_S;
        configuration::a_full_disk_ends_the_capture_and_nothing_else within LIMIT_S;
        attach::a_shell_array_holds_one_argument_a_line within LIMIT_S;
        attach::its_parts_and_forms_are_what_they_say within LIMIT_S;
        attach::libvirts_elements_are_valid_and_what_they_list_boots_qemu within LIMIT_S;
        attach::what_cannot_be_attached_is_told_with_its_cure within LIMIT_S;
        second_driver::written_from_the_datasheet_it_writes_with_immediate within LIMIT_S;
        second_driver::it_breaks_rules_and_is_told_the_right_one_each_time within LIMIT_S;
        second_driver::it_says_what_is_wrong_with_its_arguments_and_with_a_missing_server within LIMIT_S;
        machines::qemu_realizes_the_device_and_sizes_its_bars within LIMIT_S;
        machines::the_whole_transaction_under_qtest within LIMIT_S;
        machines::qemus_trace_tells_the_same_crossings_under_qtest within LIMIT_S;
        machines::the_judge_of_the_trace_notices_a_wrong_record within LIMIT_S;
        thousand::stat_is_qemus_trace_over_a_thousand_mixed_operations within LIMIT_S;
        machines::a_reset_of_the_machine_is_a_reset_of_the_device within LIMIT_S;
        machines::a_second_client_is_refused_and_a_later_one_is_served within LIMIT_S;
        sharing::a_descriptor_that_is_not_shared_is_found_out_and_told_with_its_cure within LIMIT_S;
        sharing::shared_memory_is_recognised_and_messages_are_told_once_an_adapter within LIMIT_S;
        sharing::a_client_that_does_not_negotiate_is_let_go within LIMIT_S;
        attach::its_lines_attach_an_adapter_and_a_stopped_server_loses_nothing within LIMIT_S;
        commands::the_doctor_finds_this_machine_fit_and_says_what_stops_another within LIMIT_S;
        kill::a_killed_machine_takes_nothing_with_it_twenty_times within 2 * LIMIT_S;
        demo::the_known_totals_in_guests within 2 * LIMIT_S;
        demo::what_is_lost_between_guests_is_sent_again within LIMIT_S;
        demo::the_known_totals_in_guests_booted_cold within LIMIT_S;
        counters::qemus_trace_tells_the_same_crossings_in_guests within LIMIT_S;
        counters::qemu_counts_the_same_crossings_when_every_dma_is_a_message within LIMIT_S;
        guest_memory::qmp_finds_the_payload_in_guest_b_and_canaries_around_it within LIMIT_S;
        pci::lspci_in_a_guest_shows_a_sane_pcie_device within LIMIT_S;
        pci::a_function_level_reset_by_the_guest_resets_the_device within LIMIT_S;
        pci::a_guest_reboots_with_its_adapter within LIMIT_S;
        kill::a_killed_guest_takes_nothing_with_it within LIMIT_S;
        sharing::the_ethernet_function_finds_it_out_as_well_and_is_reported within LIMIT_S;
        guests::stock_programs_run_between_two_guests within 2 * LIMIT_S;
        guests::other_kinds_of_queues_run_or_are_refused_cleanly within 2 * LIMIT_S;
        guests::the_module_survives_unbinding_resets_and_removal_in_use within LIMIT_S;
        guests::wrong_keys_sizes_states_and_flags_are_refused_by_every_verb within LIMIT_S;
        guests::a_killed_program_leaves_nothing within LIMIT_S;
        guests::a_machine_that_is_killed_under_load_harms_nobody_else within LIMIT_S;
        guests::a_guest_that_reboots_under_load_harms_nobody_else within 2 * LIMIT_S;
        guests::users_inside_the_kernel_are_served within LIMIT_S;
        guests::a_thousand_writes_cross_as_the_model_says_and_rdma_statistic_agrees within LIMIT_S;
        guests::atomic_writes_and_flushes_reach_the_other_guest within LIMIT_S;
        rxe_peer::every_operation_carries_its_bytes_both_ways within LIMIT_S;
        rxe_peer::what_is_lost_or_repeated_either_way_arrives_once within LIMIT_S;
        rxe_peer::what_is_refused_ends_both_sides_and_nothing_else within LIMIT_S;
        guests::linux_rxe_is_the_other_end_both_ways within 2 * LIMIT_S;
        guests::it_is_many_times_as_fast_as_linux_rxe within 2 * LIMIT_S;
        guests::a_changed_module_soon_has_a_fresh_adapter within 2 * LIMIT_S;
        guests::the_provider_for_the_newer_rdma_core_works within LIMIT_S;
        guests::rdma_cores_own_tests_pass within 5 * LIMIT_S;
        ends::a_killed_demo_leaves_no_machine within LIMIT_S;
        output::what_is_kept_stays_until_an_interrupt within LIMIT_S;
        workbench::a_command_runs_in_a_guest_and_its_exit_status_is_ours within LIMIT_S;
        workbench::a_folder_is_shared_and_a_kernel_of_the_users_own_boots within 5 * LIMIT_S;
        workbench::packages_of_the_users_choice_are_in_the_guest within 5 * LIMIT_S;
        workbench::an_initial_file_system_of_the_users_own_boots within 5 * LIMIT_S;
        workbench::the_console_is_a_terminal_that_the_escape_key_leaves within LIMIT_S;
        workbench::the_console_takes_a_script within LIMIT_S;
        workbench::a_killed_guest_command_leaves_no_machine within LIMIT_S;
        workbench::what_a_guest_cannot_be_made_of_is_told within LIMIT_S;
        idle::an_idle_adapter_takes_less_than_a_hundredth_of_a_core within LIMIT_S;
        ethernet::two_guests_reach_each_other within LIMIT_S;
        ethernet::tcp_carries_data_whole_both_ways within 2 * LIMIT_S;
        ethernet::it_works_when_every_dma_is_a_message within 2 * LIMIT_S;
        ethernet::an_adapter_may_have_only_its_ethernet_function within LIMIT_S;
        ethernet::a_plain_qemu_joins_the_switch within 2 * LIMIT_S;
        ethernet::the_driver_comes_and_goes_and_the_guest_reboots within 2 * LIMIT_S;
    }
}
