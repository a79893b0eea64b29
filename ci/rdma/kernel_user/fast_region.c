// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Memory that is registered by work requests, as storage protocols do it: REG_MR and the SEND that tells the peer of
 * the key stand in one list, the peer writes and reads, and the key ends by LOCAL_INV or with the peer's SEND. A key
 * that has ended is refused.
 */
#include "stage.h"

#include <linux/scatterlist.h>

#define ROUNDS 60
#define PAGES 5
/* Where the region begins in its first page, and ends in its last. */
#define BEGIN 1000
#define END 333
#define REGION_BYTES ((PAGES - 1) * PAGE_SIZE - BEGIN + END)
#define BYTES 3000
#define UNTOUCHED 0xa5

struct region {
	struct ib_mr *mr;
	struct page *pages[PAGES];
	struct scatterlist list[PAGES];
	int mapped;
};

static u8 *byte_of(struct region *region, u32 at)
{
	return (u8 *)page_address(region->pages[(BEGIN + at) / PAGE_SIZE]) + (BEGIN + at) % PAGE_SIZE;
}

static int open_region(struct stage *stage, struct region *region)
{
	int page;

	sg_init_table(region->list, PAGES);
	for (page = 0; page < PAGES; page++) {
		u32 begin = page ? 0 : BEGIN, end = page == PAGES - 1 ? END : PAGE_SIZE;

		region->pages[page] = alloc_page(GFP_KERNEL);
		FAIL_UNLESS(region->pages[page], "no memory\n");
		/* Pages that lie in a row would do with a wrong list, too. */
		if (page & 1)
			swap(region->pages[page], region->pages[page - 1]);
		sg_set_page(&region->list[page], region->pages[page], end - begin, begin);
		if (page & 1)
			sg_assign_page(&region->list[page - 1], region->pages[page - 1]);
	}
	region->mapped = ib_dma_map_sg(stage->device, region->list, PAGES, DMA_BIDIRECTIONAL);
	FAIL_UNLESS(region->mapped == PAGES, "%d of %u pieces are mapped\n", region->mapped, PAGES);
	region->mr = ib_alloc_mr(stage->pd, IB_MR_TYPE_MEM_REG, PAGES);
	if (IS_ERR(region->mr)) {
		pr_err("no fast region: %pe\n", region->mr);
		region->mr = NULL;
		return -EIO;
	}
	return 0;
}

static void close_region(struct stage *stage, struct region *region)
{
	int page;

	if (region->mr)
		ib_dereg_mr(region->mr);
	if (region->mapped)
		ib_dma_unmap_sg(stage->device, region->list, PAGES, DMA_BIDIRECTIONAL);
	for (page = 0; page < PAGES; page++)
		if (region->pages[page])
			__free_page(region->pages[page]);
}

static int post(struct side *side, struct ib_send_wr *wr, struct work *work, enum ib_wc_opcode opcode, const char *what)
{
	int err;

	prepare(work);
	wr->wr_cqe = &work->cqe;
	wr->send_flags |= IB_SEND_SIGNALED;
	err = ib_post_send(side->qp, wr, NULL);
	FAIL_UNLESS(!err, "%s is refused: %d\n", what, err);
	err = await(work, IB_WC_SUCCESS, what);
	if (err)
		return err;
	FAIL_UNLESS(work->wc.opcode == opcode, "%s completes as %d\n", what, work->wc.opcode);
	return 0;
}

/* The region gets its memory, and the peer learns of it by the message behind: only that one has a completion. */
static int publish(struct stage *stage, struct region *region, struct side *owner, struct side *peer, u32 *rkey)
{
	struct ib_sge target = { peer->address, sizeof(*rkey), stage->pd->local_dma_lkey };
	struct ib_sge told = { (uintptr_t)&region->mr->rkey, sizeof(*rkey), 0 };
	struct ib_reg_wr registration = {
		.wr = { .opcode = IB_WR_REG_MR },
		.mr = region->mr,
		.key = region->mr->rkey,
		.access = IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_WRITE | IB_ACCESS_REMOTE_READ,
	};
	struct ib_send_wr send = { .opcode = IB_WR_SEND, .sg_list = &told, .num_sge = 1,
				   .send_flags = IB_SEND_INLINE | IB_SEND_SIGNALED };
	struct work received, sent;
	struct ib_recv_wr receive = { .wr_cqe = &received.cqe, .sg_list = &target, .num_sge = 1 };
	int err;

	prepare(&received);
	prepare(&sent);
	send.wr_cqe = &sent.cqe;
	registration.wr.wr_cqe = &sent.cqe;
	registration.wr.next = &send;
	err = ib_post_recv(peer->qp, &receive, NULL);
	FAIL_UNLESS(!err, "a receive is refused: %d\n", err);
	err = ib_post_send(owner->qp, &registration.wr, NULL);
	FAIL_UNLESS(!err, "a registration and a send are refused: %d\n", err);
	err = await(&sent, IB_WC_SUCCESS, "send behind a registration") ?:
	      await(&received, IB_WC_SUCCESS, "the key's receive");
	memcpy(rkey, peer->buffer, sizeof(*rkey));
	return err;
}

/* The peer writes into the region and reads it back; the owner sends out of it by its own key. */
static int use(struct stage *stage, struct region *region, struct side *owner, struct side *peer, u32 rkey, u32 round)
{
	u32 half = BUFFER_BYTES / 2, at = (round * 761) % (REGION_BYTES - BYTES), index;
	u32 lkey = stage->pd->local_dma_lkey;
	struct ib_sge source = { peer->address + half, BYTES, lkey }, target = { peer->address, BYTES, lkey };
	struct ib_sge own = { region->mr->iova + at, BYTES, region->mr->lkey };
	struct ib_rdma_wr write = { .wr = { .opcode = IB_WR_RDMA_WRITE, .sg_list = &source, .num_sge = 1 },
				    .remote_addr = region->mr->iova + at, .rkey = rkey };
	struct ib_rdma_wr read = { .wr = { .opcode = IB_WR_RDMA_READ, .sg_list = &target, .num_sge = 1 },
				   .remote_addr = region->mr->iova + at, .rkey = rkey };
	struct ib_rdma_wr back = { .wr = { .opcode = IB_WR_RDMA_WRITE, .sg_list = &own, .num_sge = 1 },
				   .remote_addr = peer->address, .rkey = stage->pd->unsafe_global_rkey };
	struct work work;
	int err;

	for (index = 0; index < PAGES; index++)
		memset(page_address(region->pages[index]), UNTOUCHED, PAGE_SIZE);
	for (index = 0; index < BYTES; index++)
		peer->buffer[half + index] = round * 11 + index * 17;
	err = post(peer, &write.wr, &work, IB_WC_RDMA_WRITE, "write into a fast region");
	if (err)
		return err;
	for (index = 0; index < REGION_BYTES; index++) {
		u8 right = index >= at && index < at + BYTES ? peer->buffer[half + index - at] : UNTOUCHED;

		FAIL_UNLESS(*byte_of(region, index) == right, "round %u: byte %u of the region is wrong\n", round,
			    index);
	}
	memset(peer->buffer, 0, half);
	err = post(peer, &read.wr, &work, IB_WC_RDMA_READ, "read of a fast region");
	if (err)
		return err;
	FAIL_UNLESS(!memcmp(peer->buffer, peer->buffer + half, BYTES), "round %u: the bytes read are wrong\n", round);
	memset(peer->buffer, 0, half);
	err = post(owner, &back.wr, &work, IB_WC_RDMA_WRITE, "write out of a fast region");
	FAIL_UNLESS(err || !memcmp(peer->buffer, peer->buffer + half, BYTES), "round %u: the bytes sent are wrong\n",
		    round);
	return err;
}

static int invalidate_locally(struct side *owner, u32 key)
{
	struct ib_send_wr wr = { .opcode = IB_WR_LOCAL_INV, .ex.invalidate_rkey = key };
	struct work work;

	return post(owner, &wr, &work, IB_WC_LOCAL_INV, "invalidation");
}

static int invalidate_by_peer(struct side *owner, struct side *peer, u32 key)
{
	struct ib_send_wr wr = { .opcode = IB_WR_SEND_WITH_INV, .ex.invalidate_rkey = key };
	struct work received, sent;
	struct ib_recv_wr receive = { .wr_cqe = &received.cqe };
	int err;

	prepare(&received);
	err = ib_post_recv(owner->qp, &receive, NULL);
	FAIL_UNLESS(!err, "a receive is refused: %d\n", err);
	err = post(peer, &wr, &sent, IB_WC_SEND, "send with invalidate") ?:
	      await(&received, IB_WC_SUCCESS, "a receive that invalidates");
	if (err)
		return err;
	FAIL_UNLESS(received.wc.wc_flags & IB_WC_WITH_INVALIDATE && received.wc.ex.invalidate_rkey == key,
		    "the receive tells of key %#x with flags %#x\n", received.wc.ex.invalidate_rkey,
		    received.wc.wc_flags);
	return 0;
}

/* The last key has ended: whoever uses it fails, and nothing is written. Both queue pairs go to ERROR. */
static int use_ended(struct stage *stage, struct region *region, struct side *peer, u32 rkey)
{
	struct ib_sge source = { peer->address, BYTES, stage->pd->local_dma_lkey };
	struct work work;
	struct ib_rdma_wr write = { .wr = { .wr_cqe = &work.cqe, .opcode = IB_WR_RDMA_WRITE, .sg_list = &source,
					    .num_sge = 1, .send_flags = IB_SEND_SIGNALED },
				    .remote_addr = region->mr->iova, .rkey = rkey };
	u32 index;
	int err;

	prepare(&work);
	for (index = 0; index < PAGES; index++)
		memset(page_address(region->pages[index]), UNTOUCHED, PAGE_SIZE);
	memset(peer->buffer, 0, BYTES);
	err = ib_post_send(peer->qp, &write.wr, NULL);
	FAIL_UNLESS(!err, "a write is refused: %d\n", err);
	err = await(&work, IB_WC_REM_ACCESS_ERR, "write with a key that has ended");
	if (err)
		return err;
	for (index = 0; index < REGION_BYTES; index++)
		FAIL_UNLESS(*byte_of(region, index) == UNTOUCHED, "an ended key wrote byte %u\n", index);
	return 0;
}

static int play(struct stage *stage, struct region *region)
{
	u32 round, rkey = 0;
	int err = 0;

	for (round = 0; !err && round < ROUNDS; round++) {
		struct side *owner = &stage->sides[round / 2 & 1], *peer = &stage->sides[~(round / 2) & 1];
		int mapped = ib_map_mr_sg(region->mr, region->list, PAGES, NULL, PAGE_SIZE);

		FAIL_UNLESS(mapped == PAGES && region->mr->length == REGION_BYTES, "%d pieces, %llu bytes are mapped\n",
			    mapped, region->mr->length);
		ib_update_fast_reg_key(region->mr, round + 1);
		err = publish(stage, region, owner, peer, &rkey) ?: use(stage, region, owner, peer, rkey, round) ?:
		      (round & 1 ? invalidate_locally(owner, rkey) : invalidate_by_peer(owner, peer, rkey));
	}
	err = err ?: use_ended(stage, region, &stage->sides[0], rkey);
	if (!err)
		pr_info("%u rounds of fast registration were right\n", ROUNDS);
	return err;
}

int use_fast_regions(struct stage *stage)
{
	struct region *region = kzalloc(sizeof(*region), GFP_KERNEL);
	int err;

	FAIL_UNLESS(region, "no memory\n");
	err = open_region(stage, region) ?: play(stage, region);
	close_region(stage, region);
	kfree(region);
	return err;
}
