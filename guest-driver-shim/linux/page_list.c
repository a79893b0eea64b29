// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * A process' memory, pinned, as the page lists of the hardware interface: one run where its pages lie in a row, else a
 * list, else lists in a list, so that no list needs much contiguous memory.
 */
#include <linux/bits.h>
#include <rdma/iter.h>

#include "rnic.h"

#define ENTRIES_A_PAGE (PAGE_SIZE / sizeof(__le64))
/* Longer ones become lists of lists: 128 KiB in a row are easy to get. */
#define LONGEST_LIST (32 * ENTRIES_A_PAGE)

static void release(struct rnic_dev *dev, struct rnic_page_list *pages)
{
	size_t at;

	for (at = 0; at < pages->inner_count; at++)
		rnic_dma_free(dev, &pages->inner[at]);
	kvfree(pages->inner);
	pages->inner = NULL;
	pages->inner_count = 0;
	rnic_dma_free(dev, &pages->list);
}

static int allocate(struct rnic_dev *dev, struct rnic_page_list *pages, size_t count)
{
	size_t lists = DIV_ROUND_UP(count, ENTRIES_A_PAGE), at;
	__le64 *outer;
	int err;

	if (count <= LONGEST_LIST)
		return rnic_dma_alloc(dev, &pages->list, count * sizeof(__le64));
	pages->inner = kvcalloc(lists, sizeof(*pages->inner), GFP_KERNEL);
	if (!pages->inner)
		return -ENOMEM;
	err = rnic_dma_alloc(dev, &pages->list, lists * sizeof(__le64));
	if (err)
		return err;
	outer = pages->list.cpu;
	for (at = 0; at < lists; at++) {
		err = rnic_dma_alloc(dev, &pages->inner[at], PAGE_SIZE);
		if (err)
			return err;
		pages->inner_count = at + 1;
		outer[at] = cpu_to_le64(pages->inner[at].iova);
	}
	return 0;
}

static bool in_a_row(struct ib_umem *umem, unsigned long page_bytes, dma_addr_t *first)
{
	struct ib_block_iter block;
	dma_addr_t next = 0, at;
	bool begun = false;

	rdma_umem_for_each_dma_block(umem, &block, page_bytes) {
		at = rdma_block_iter_dma_address(&block);
		if (begun && at != next)
			return false;
		if (!begun)
			*first = at;
		begun = true;
		next = at + page_bytes;
	}
	return begun;
}

static int describe(struct rnic_dev *dev, struct ib_umem *umem, unsigned long page_bytes, u64 lead,
		    struct rnic_page_list *pages)
{
	size_t count = ib_umem_num_dma_blocks(umem, page_bytes), at = 0;
	struct ib_block_iter block;
	dma_addr_t first = 0;
	__le64 *list;
	int err;

	if (in_a_row(umem, page_bytes, &first)) {
		pages->fields = rnic_one_run(first + lead);
		return 0;
	}
	err = allocate(dev, pages, count);
	if (err) {
		release(dev, pages);
		return err;
	}
	rdma_umem_for_each_dma_block(umem, &block, page_bytes) {
		if (WARN_ON_ONCE(at >= count))
			break;
		list = pages->inner ? pages->inner[at / ENTRIES_A_PAGE].cpu : pages->list.cpu;
		list[pages->inner ? at % ENTRIES_A_PAGE : at] = cpu_to_le64(rdma_block_iter_dma_address(&block));
		at++;
	}
	pages->fields = rnic_one_run(pages->list.iova);
	pages->fields.page_shift = ilog2(page_bytes);
	pages->fields.levels = pages->inner ? 2 : 1;
	return 0;
}

static int pin(struct rnic_dev *dev, struct rnic_user_memory *memory, u64 start, u64 bytes, u64 address, int access,
	       unsigned long page_sizes)
{
	unsigned long page_bytes;
	struct ib_umem *umem;
	int err;

	umem = rnic_umem_get(&dev->ibdev, start, bytes, access);
	if (IS_ERR(umem))
		return PTR_ERR(umem);
	page_bytes = ib_umem_find_best_pgsz(umem, page_sizes, address);
	if (!page_bytes) {
		ib_umem_release(umem);
		return -EINVAL;
	}
	err = describe(dev, umem, page_bytes, address & (page_bytes - 1), &memory->pages);
	if (err) {
		ib_umem_release(umem);
		return err;
	}
	memory->umem = umem;
	return 0;
}

/* Memory that work requests name by address, where the process has it at start. */
int rnic_user_memory_get(struct rnic_dev *dev, struct rnic_user_memory *memory, u64 start, u64 bytes, u64 address,
			 int access)
{
	return pin(dev, memory, start, bytes, address, access, GENMASK(30, 12));
}

/* A ring, which begins with its first page. */
int rnic_user_ring_get(struct rnic_dev *dev, struct rnic_user_memory *memory, u64 start, u64 bytes)
{
	if (!IS_ALIGNED(start, PAGE_SIZE))
		return -EINVAL;
	return pin(dev, memory, start, bytes, start, IB_ACCESS_LOCAL_WRITE, PAGE_SIZE);
}

void rnic_user_memory_put(struct rnic_dev *dev, struct rnic_user_memory *memory)
{
	release(dev, &memory->pages);
	if (memory->umem)
		ib_umem_release(memory->umem);
	memory->umem = NULL;
}
