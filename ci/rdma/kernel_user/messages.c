// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Messages of every shape, their completions, and what is outstanding when a queue pair fails. */
#include "stage.h"

#define ROUNDS 150

/* A SEND of three elements into a receive of two, or an inline one with an immediate, by turns. */
static int send_once(struct stage *stage, struct side *from, struct side *to, u32 round)
{
	u32 lkey = stage->pd->local_dma_lkey, half = BUFFER_BYTES / 2, index;
	bool small = round & 1;
	u32 bytes = small ? 40 : 3000;
	struct ib_sge target[2] = { { to->address, 100, lkey }, { to->address + 100, half - 100, lkey } };
	struct ib_sge elements[3] = { { from->address + half, 1, lkey }, { from->address + half + 1, 1999, lkey },
				      { from->address + half + 2000, 1000, lkey } };
	struct ib_sge whole = { (uintptr_t)(from->buffer + half), bytes, 0 };
	struct work sent, received;
	struct ib_recv_wr receive = { .wr_cqe = &received.cqe, .sg_list = target, .num_sge = 2 };
	struct ib_send_wr send = { .wr_cqe = &sent.cqe, .sg_list = small ? &whole : elements, .num_sge = small ? 1 : 3,
				   .opcode = small ? IB_WR_SEND_WITH_IMM : IB_WR_SEND,
				   .send_flags = IB_SEND_SIGNALED | (small ? IB_SEND_INLINE : 0),
				   .ex.imm_data = cpu_to_be32(round) };
	int err;

	prepare(&sent);
	prepare(&received);
	memset(to->buffer, 0xa5, half);
	for (index = 0; index < bytes; index++)
		from->buffer[half + index] = round * 7 + index * 13;
	err = ib_post_recv(to->qp, &receive, NULL);
	FAIL_UNLESS(!err, "a receive is refused: %d\n", err);
	err = ib_post_send(from->qp, &send, NULL);
	FAIL_UNLESS(!err, "a send is refused: %d\n", err);
	err = await(&sent, IB_WC_SUCCESS, "send") ?: await(&received, IB_WC_SUCCESS, "receive");
	if (err)
		return err;
	FAIL_UNLESS(received.wc.byte_len == bytes && received.wc.opcode == IB_WC_RECV, "the receive says %u bytes\n",
		    received.wc.byte_len);
	FAIL_UNLESS(received.wc.qp == to->qp && sent.wc.qp == from->qp, "completions of another queue pair\n");
	FAIL_UNLESS(!small || (received.wc.wc_flags & IB_WC_WITH_IMM && received.wc.ex.imm_data == send.ex.imm_data),
		    "the immediate is wrong\n");
	FAIL_UNLESS(!memcmp(to->buffer, from->buffer + half, bytes) && to->buffer[bytes] == 0xa5,
		    "round %u: the bytes are wrong\n", round);
	return 0;
}

/* Two unsignaled WRITEs and a signaled one in one list. */
static int write_thrice(struct stage *stage, struct side *from, struct side *to, u32 round)
{
	u32 half = BUFFER_BYTES / 2, index;
	struct ib_rdma_wr writes[3] = {};
	struct ib_sge elements[3];
	struct work last;
	int err;

	prepare(&last);
	memset(to->buffer, 0, half);
	for (index = 0; index < 3; index++) {
		memset(from->buffer + half + 100 * index, round + index, 100);
		elements[index] = (struct ib_sge){ from->address + half + 100 * index, 100, stage->pd->local_dma_lkey };
		writes[index].wr.opcode = IB_WR_RDMA_WRITE;
		writes[index].wr.sg_list = &elements[index];
		writes[index].wr.num_sge = 1;
		writes[index].wr.wr_cqe = &last.cqe;
		writes[index].remote_addr = to->address + 100 * index;
		writes[index].rkey = stage->pd->unsafe_global_rkey;
		if (index < 2)
			writes[index].wr.next = &writes[index + 1].wr;
	}
	writes[2].wr.send_flags = IB_SEND_SIGNALED;
	err = ib_post_send(from->qp, &writes[0].wr, NULL);
	FAIL_UNLESS(!err, "a list of writes is refused: %d\n", err);
	err = await(&last, IB_WC_SUCCESS, "writes");
	if (err)
		return err;
	FAIL_UNLESS(last.wc.opcode == IB_WC_RDMA_WRITE, "the completion is of opcode %d\n", last.wc.opcode);
	FAIL_UNLESS(!memcmp(to->buffer, from->buffer + half, 300), "round %u: the written bytes are wrong\n", round);
	return 0;
}

/* In ERROR everything posted is flushed. */
int fail_outstanding(struct side *side)
{
	struct ib_qp_attr attr = { .qp_state = IB_QPS_ERR };
	struct ib_recv_wr receives[2] = {};
	struct work flushed[2];
	int index, err;

	for (index = 0; index < 2; index++) {
		prepare(&flushed[index]);
		receives[index].wr_cqe = &flushed[index].cqe;
		err = ib_post_recv(side->qp, &receives[index], NULL);
		FAIL_UNLESS(!err, "a receive is refused: %d\n", err);
	}
	err = ib_modify_qp(side->qp, &attr, IB_QP_STATE);
	FAIL_UNLESS(!err, "ERR: %d\n", err);
	err = await(&flushed[0], IB_WC_WR_FLUSH_ERR, "flush") ?: await(&flushed[1], IB_WC_WR_FLUSH_ERR, "flush");
	if (!err)
		ib_drain_qp(side->qp);
	return err;
}

int exchange_messages(struct stage *stage)
{
	struct side *sides = stage->sides;
	u32 round;
	int err = 0;

	for (round = 0; !err && round < ROUNDS; round++)
		err = send_once(stage, &sides[round / 2 & 1], &sides[~(round / 2) & 1], round) ?:
		      write_thrice(stage, &sides[round & 1], &sides[~round & 1], round);
	if (!err)
		pr_info("%u rounds of messages were right\n", ROUNDS);
	return err;
}
