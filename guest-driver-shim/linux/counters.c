// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* What the device counts, as the hardware counters of its port: `rdma statistic`, and hw_counters in sysfs. */
#include "rnic.h"

/* In the order of the device's numbers. */
#define PORT_COUNTERS 54
static const struct rdma_stat_desc counters[] = {
	{ .name = "sent_pkts" },
	{ .name = "rcvd_pkts" },
	{ .name = "duplicate_request" },
	{ .name = "duplicate_unanswered" },
	{ .name = "out_of_seq_request" },
	{ .name = "rcvd_rnr_err" },
	{ .name = "send_rnr_err" },
	{ .name = "rcvd_seq_err" },
	{ .name = "send_seq_err" },
	{ .name = "retry_exceeded_err" },
	{ .name = "retry_rnr_exceeded_err" },
	{ .name = "local_ack_timeout_err" },
	{ .name = "retransmitted_pkts" },
	{ .name = "implied_nak_seq_err" },
	{ .name = "rx_read_requests" },
	{ .name = "rx_atomic_requests" },
	{ .name = "ghost_acks" },
	{ .name = "msn_mismatch" },
	{ .name = "resp_local_invalid_request" },
	{ .name = "resp_remote_access_errors" },
	{ .name = "resp_local_operation_errors" },
	{ .name = "rx_dropped_frame" },
	{ .name = "rx_icrc_errors" },
	{ .name = "rx_dropped_no_qp" },
	{ .name = "rx_dropped_state" },
	{ .name = "rx_dropped_address" },
	{ .name = "rx_dropped_transport" },
	{ .name = "rx_bad_pkey" },
	{ .name = "rx_bad_qkey" },
	{ .name = "rx_dropped_no_receive" },
	{ .name = "rx_dropped_too_long" },
	{ .name = "rx_dropped_sequence" },
	{ .name = "rx_dropped_refused" },
	{ .name = "rx_group_copies" },
	{ .name = "lkey_invalid" },
	{ .name = "lkey_range" },
	{ .name = "lkey_right" },
	{ .name = "lkey_pd" },
	{ .name = "rkey_invalid" },
	{ .name = "rkey_range" },
	{ .name = "rkey_right" },
	{ .name = "rkey_pd" },
	{ .name = "invalidated_keys" },
	{ .name = "finished_sends" },
	{ .name = "executed_messages" },
	{ .name = "cqe_lost" },
	{ .name = "eqe_lost" },
	{ .name = "diagnostics" },
	{ .name = "rx_atomic_writes" },
	{ .name = "rx_flushes" },
	{ .name = "np_cnp_sent" },
	{ .name = "np_ecn_marked_roce_packets" },
	{ .name = "rp_cnp_handled" },
	{ .name = "rp_cnp_ignored" },
	/* Crossings of the PCIe link, by class. */
	{ .name = "pcie_doorbell" },
	{ .name = "pcie_wqe_fetch" },
	{ .name = "pcie_payload_read" },
	{ .name = "pcie_payload_write" },
	{ .name = "pcie_recv_wqe_fetch" },
	{ .name = "pcie_cqe_write" },
	{ .name = "pcie_event" },
	{ .name = "pcie_atomic_read" },
	{ .name = "pcie_atomic_write" },
	{ .name = "pcie_context_fetch" },
	{ .name = "pcie_context_writeback" },
	{ .name = "pcie_key_fetch" },
	{ .name = "pcie_translation_fetch" },
	{ .name = "pcie_recv_doorbell" },
	{ .name = "pcie_cq_arm" },
	{ .name = "pcie_eq_update" },
	{ .name = "pcie_register_write" },
	{ .name = "pcie_register_read" },
	{ .name = "pcie_record_fetch" },
	{ .name = "pcie_command_fetch" },
	{ .name = "pcie_command_completion" },
	{ .name = "pcie_flush_read" },
};

static_assert(ARRAY_SIZE(counters) > PORT_COUNTERS);

struct rdma_hw_stats *rnic_alloc_hw_port_stats(struct ib_device *ibdev, u32 port)
{
	return rdma_alloc_hw_stats_struct(counters, ARRAY_SIZE(counters), RDMA_HW_STATS_DEFAULT_LIFESPAN);
}

/* A group's counters, as many as both sides know. */
static int read_group(struct rnic_dev *dev, u8 group, u64 *values, unsigned int wanted)
{
	struct rnic_query_counters body = { .group = group };
	struct rnic_counter_values answer = {};
	unsigned int have = 0, at, count;
	int err;

	do {
		body.first = cpu_to_le16(have);
		err = rnic_command(dev, RNIC_COMMAND_OPCODE_QUERY_COUNTERS, &body, sizeof(body), &answer,
				   sizeof(answer));
		if (err)
			return err;
		count = min_t(unsigned int, le16_to_cpu(answer.count), ARRAY_SIZE(answer.values));
		for (at = 0; at < count && have < wanted; at++)
			values[have++] = le64_to_cpu(answer.values[at]);
	} while (count && have < wanted && have < le16_to_cpu(answer.total));
	return 0;
}

int rnic_get_hw_stats(struct ib_device *ibdev, struct rdma_hw_stats *stats, u32 port, int index)
{
	struct rnic_dev *dev = to_rnic(ibdev);
	int err;

	if (!port)
		return -EOPNOTSUPP;
	err = read_group(dev, RNIC_COUNTERS_PORT, stats->value, PORT_COUNTERS);
	if (!err)
		err = read_group(dev, RNIC_COUNTERS_CROSSINGS, stats->value + PORT_COUNTERS,
				 ARRAY_SIZE(counters) - PORT_COUNTERS);
	return err ?: stats->num_counters;
}
