// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Memory regions and windows, and the pages of rings. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "rnic.h"

/* Whole pages of ours, zeroed. */
static int map(struct rnic_pages *pages)
{
	pages->address = mmap(NULL, pages->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (pages->address != MAP_FAILED)
		return 0;
	pages->address = NULL;
	return ENOMEM;
}

/* From the application's allocator, which may leave it to us, and must know what a page is. */
static int ask(struct rnic_pages *pages, struct rnic_pd *pd, size_t page_bytes)
{
	void *address = pd->alloc(&pd->base, pd->context, pages->bytes, page_bytes, RNIC_RESOURCE_RING);

	if (address == IBV_ALLOCATOR_USE_DEFAULT)
		return map(pages);
	if (!address)
		return ENOMEM;
	if ((uintptr_t)address % page_bytes) {
		pd->free(&pd->base, pd->context, address, RNIC_RESOURCE_RING);
		return EINVAL;
	}
	memset(address, 0, pages->bytes);
	pages->address = address;
	pages->of = pd;
	rnic_count(&pd->users, 1);
	return 0;
}

static void give_back(struct rnic_pages *pages)
{
	struct rnic_pd *pd = pages->of;

	if (pd) {
		pd->free(&pd->base, pd->context, pages->address, RNIC_RESOURCE_RING);
		rnic_count(&pd->users, -1);
	} else {
		munmap(pages->address, pages->bytes);
	}
	*pages = (struct rnic_pages){};
}

/*
 * Zeroed whole pages, which a child of fork() does not get: the device would write into the parent's only. The domain, if
 * there is one, says where they come from.
 */
int rnic_pages_get(struct rnic_pages *pages, struct ibv_pd *ibpd, size_t bytes, size_t page_bytes)
{
	struct rnic_pd *pd = ibpd ? to_rnic_pd(ibpd) : NULL;
	int err;

	*pages = (struct rnic_pages){ .bytes = align(bytes, page_bytes) };
	err = pd && pd->alloc ? ask(pages, pd, page_bytes) : map(pages);
	if (err)
		return err;
	if (!ibv_dontfork_range(pages->address, pages->bytes))
		return 0;
	give_back(pages);
	return ENOMEM;
}

void rnic_pages_put(struct rnic_pages *pages)
{
	if (!pages->address)
		return;
	ibv_dofork_range(pages->address, pages->bytes);
	give_back(pages);
}

struct ibv_mr *rnic_reg_mr(struct ibv_pd *pd, void *address, size_t length, uint64_t hca_va, int access)
{
	struct verbs_mr *mr = calloc(1, sizeof(*mr));
	struct ib_uverbs_reg_mr_resp answer;
	struct ibv_reg_mr command = {};
	int err;

	if (!mr) {
		errno = ENOMEM;
		return NULL;
	}
	err = ibv_cmd_reg_mr(pd, address, length, hca_va, access, mr, &command, sizeof(command), &answer,
			     sizeof(answer));
	if (err) {
		free(mr);
		errno = err;
		return NULL;
	}
	return &mr->ibv_mr;
}

int rnic_rereg_mr(struct verbs_mr *mr, int flags, struct ibv_pd *pd, void *address, size_t length, int access)
{
	struct ib_uverbs_rereg_mr_resp answer;
	struct ibv_rereg_mr command = {};

	return ibv_cmd_rereg_mr(mr, flags, address, length, (uintptr_t)address, access, pd, &command, sizeof(command),
				&answer, sizeof(answer));
}

struct ibv_mw *rnic_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	struct ib_uverbs_alloc_mw_resp answer;
	struct ibv_alloc_mw command = {};
	struct ibv_mw *mw = calloc(1, sizeof(*mw));
	int err;

	if (!mw) {
		errno = ENOMEM;
		return NULL;
	}
	err = ibv_cmd_alloc_mw(pd, type, mw, &command, sizeof(command), &answer, sizeof(answer));
	if (err) {
		free(mw);
		errno = err;
		return NULL;
	}
	return mw;
}

int rnic_dealloc_mw(struct ibv_mw *mw)
{
	int err = ibv_cmd_dealloc_mw(mw);

	if (err)
		return err;
	free(mw);
	return 0;
}

int rnic_dereg_mr(struct verbs_mr *mr)
{
	int err = ibv_cmd_dereg_mr(mr);

	if (err)
		return err;
	free(mr);
	return 0;
}
