/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What changed in the kernel's RDMA interface between the oldest and the newest kernel that this driver is for. */
#ifndef RNIC_COMPAT_H
#define RNIC_COMPAT_H

#include <linux/version.h>
#include <rdma/ib_umem.h>
#include <rdma/ib_verbs.h>

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 12, 0)
#error "rnic needs Linux 6.12 or newer"
#endif

/* From 6.17 on a registration may name hints for the processor's caches. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 17, 0)
#define RNIC_HAS_DMAH 1
#endif

/* From 6.16 on the core tells users of a port when its network device comes and goes. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 16, 0)
#define RNIC_CORE_TELLS_PORT_EVENTS 1
#endif

/* From 7.1 on only processes' completion queues are resized. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(7, 1, 0)
#define RNIC_RESIZES_USER_CQS 1
#endif

/* From 7.2 on pinned user memory is asked for by kind. */
static inline struct ib_umem *rnic_umem_get(struct ib_device *ibdev, u64 address, size_t bytes, int access)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(7, 2, 0)
	return ib_umem_get_va(ibdev, address, bytes, access);
#else
	return ib_umem_get(ibdev, address, bytes, access);
#endif
}

#endif /* RNIC_COMPAT_H */
