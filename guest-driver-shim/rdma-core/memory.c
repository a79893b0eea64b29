// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Protection domains, memory regions, and the pages of rings. */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "rnic.h"

/* Zeroed whole pages, which a child of fork() does not get: the device would write into the parent's only. */
int rnic_pages_get(struct rnic_pages *pages, size_t bytes, size_t page_bytes)
{
	bytes = align(bytes, page_bytes);
	pages->address = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (pages->address == MAP_FAILED) {
		pages->address = NULL;
		return ENOMEM;
	}
	pages->bytes = bytes;
	if (ibv_dontfork_range(pages->address, bytes)) {
		munmap(pages->address, bytes);
		pages->address = NULL;
		return ENOMEM;
	}
	return 0;
}

void rnic_pages_put(struct rnic_pages *pages)
{
	if (!pages->address)
		return;
	ibv_dofork_range(pages->address, pages->bytes);
	munmap(pages->address, pages->bytes);
	pages->address = NULL;
}

struct ibv_pd *rnic_alloc_pd(struct ibv_context *context)
{
	struct ibv_alloc_pd command = {};
	struct {
		struct ib_uverbs_alloc_pd_resp core;
		struct rnic_uresp_alloc_pd ours;
	} answer = {};
	struct rnic_pd *pd = calloc(1, sizeof(*pd));
	int err;

	if (!pd) {
		errno = ENOMEM;
		return NULL;
	}
	err = ibv_cmd_alloc_pd(context, &pd->base, &command, sizeof(command), &answer.core, sizeof(answer));
	if (err) {
		free(pd);
		errno = err;
		return NULL;
	}
	pd->pdn = answer.ours.pdn;
	return &pd->base;
}

int rnic_dealloc_pd(struct ibv_pd *ibpd)
{
	int err = ibv_cmd_dealloc_pd(ibpd);

	if (err)
		return err;
	free(container_of(ibpd, struct rnic_pd, base));
	return 0;
}

struct ibv_xrcd *rnic_open_xrcd(struct ibv_context *context, struct ibv_xrcd_init_attr *attr)
{
	struct verbs_xrcd *xrcd = calloc(1, sizeof(*xrcd));
	struct ib_uverbs_open_xrcd_resp answer;
	struct ibv_open_xrcd command = {};
	int err;

	if (!xrcd) {
		errno = ENOMEM;
		return NULL;
	}
	err = ibv_cmd_open_xrcd(context, xrcd, sizeof(*xrcd), attr, &command, sizeof(command), &answer, sizeof(answer));
	if (err) {
		free(xrcd);
		errno = err;
		return NULL;
	}
	return &xrcd->xrcd;
}

int rnic_close_xrcd(struct ibv_xrcd *ibxrcd)
{
	struct verbs_xrcd *xrcd = container_of(ibxrcd, struct verbs_xrcd, xrcd);
	int err = ibv_cmd_close_xrcd(xrcd);

	if (err)
		return err;
	free(xrcd);
	return 0;
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
