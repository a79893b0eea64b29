// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Address handles: the address vector as work requests carry it, resolved by the kernel once. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rnic.h"

struct ibv_ah *rnic_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	struct {
		struct ib_uverbs_create_ah_resp core;
		struct rnic_uresp_create_ah ours;
	} answer = {};
	struct rnic_ah *ah = calloc(1, sizeof(*ah));
	int err;

	if (!ah) {
		errno = ENOMEM;
		return NULL;
	}
	err = ibv_cmd_create_ah(pd, &ah->base, attr, &answer.core, sizeof(answer));
	if (err) {
		free(ah);
		errno = err;
		return NULL;
	}
	static_assert(sizeof(ah->av) == sizeof(answer.ours.address_vector), "the kernel's address vector");
	memcpy(&ah->av, answer.ours.address_vector, sizeof(ah->av));
	return &ah->base;
}

int rnic_destroy_ah(struct ibv_ah *ibah)
{
	int err = ibv_cmd_destroy_ah(ibah);

	if (err)
		return err;
	free(container_of(ibah, struct rnic_ah, base));
	return 0;
}
