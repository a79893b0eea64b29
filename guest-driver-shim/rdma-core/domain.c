// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Protection domains, domains of extended connections, and parent domains: those by which an application says where the
 * memory of rings comes from, and that one thread alone uses them, which changes nothing here.
 */
#include <errno.h>
#include <stdlib.h>

#include "rnic.h"

struct rnic_td {
	struct ibv_td base;
	uint32_t users;
};

static struct rnic_td *to_rnic_td(struct ibv_td *td)
{
	return container_of(td, struct rnic_td, base);
}

static bool is_used(const uint32_t *users)
{
	return __atomic_load_n(users, __ATOMIC_ACQUIRE) != 0;
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
	return &pd->base;
}

struct ibv_td *rnic_alloc_td(struct ibv_context *context, struct ibv_td_init_attr *attr)
{
	struct rnic_td *td;

	if (attr->comp_mask) {
		errno = EINVAL;
		return NULL;
	}
	td = calloc(1, sizeof(*td));
	if (!td) {
		errno = ENOMEM;
		return NULL;
	}
	td->base.context = context;
	return &td->base;
}

int rnic_dealloc_td(struct ibv_td *ibtd)
{
	struct rnic_td *td = to_rnic_td(ibtd);

	if (is_used(&td->users))
		return EBUSY;
	free(td);
	return 0;
}

/* The kernel knows the domain inside alone. */
struct ibv_pd *rnic_alloc_parent_domain(struct ibv_context *context, struct ibv_parent_domain_init_attr *attr)
{
	const uint32_t known = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
	struct rnic_pd *pd;

	if (ibv_check_alloc_parent_domain(attr))
		return NULL;
	if (attr->comp_mask & ~known ||
	    (attr->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS && (!attr->alloc || !attr->free))) {
		errno = EINVAL;
		return NULL;
	}
	pd = calloc(1, sizeof(*pd));
	if (!pd) {
		errno = ENOMEM;
		return NULL;
	}
	ibv_initialize_parent_domain(&pd->base, attr->pd);
	pd->inside = to_rnic_pd(attr->pd);
	pd->td = attr->td;
	if (attr->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS) {
		pd->alloc = attr->alloc;
		pd->free = attr->free;
	}
	if (attr->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT)
		pd->context = attr->pd_context;
	rnic_count(&pd->inside->users, 1);
	if (pd->td)
		rnic_count(&to_rnic_td(pd->td)->users, 1);
	return &pd->base;
}

int rnic_dealloc_pd(struct ibv_pd *ibpd)
{
	struct rnic_pd *pd = to_rnic_pd(ibpd);
	int err;

	if (is_used(&pd->users))
		return EBUSY;
	if (pd->inside) {
		rnic_count(&pd->inside->users, -1);
		if (pd->td)
			rnic_count(&to_rnic_td(pd->td)->users, -1);
		free(pd);
		return 0;
	}
	err = ibv_cmd_dealloc_pd(ibpd);
	if (err)
		return err;
	free(pd);
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
