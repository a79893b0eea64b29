/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The driver's objects and what its files offer each other.
 *
 * In the order of a device's life: pci.c finds the device and makes it ready, command.c carries commands, event.c takes
 * events, memory.c has tables and regions, page_list.c describes memory to the device, netdev.c finds the network
 * device of the port, device.c answers questions about device and port, counters.c reads what the device counts,
 * context.c serves processes, address.c says where packets go, registration.c has regions that change,
 * completion_queue.c, resize.c, queue_pair.c and shared_receive.c the queues. The data path of kernel users (that of
 * processes is in the provider) is work_queue.c, their rings and what completes in them, send.c and receive.c.
 */
#ifndef RNIC_H
#define RNIC_H

#include <linux/completion.h>
#include <linux/etherdevice.h>
#include <linux/io.h>
#include <linux/mutex.h>
#include <linux/netdevice.h>
#include <linux/pci.h>
#include <linux/spinlock.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>
#include <rdma/ib_umem.h>
#include <rdma/ib_verbs.h>
#include <rdma/uverbs_ioctl.h>

#include "compat.h"
#include "rnic_abi.h"
#include "rnic_uverbs.h"

#define RNIC_NAME "rnic"
#define RNIC_PORT 1
#define RNIC_ASYNC_EQN 0
/* At most this many event queues for completions: more processors share them. */
#define RNIC_MAX_COMPLETION_EQS 16

/* Memory that device and processor both see. */
struct rnic_dma {
	void *cpu;
	dma_addr_t iova;
	size_t bytes;
};

struct rnic_command_queue {
	struct mutex lock; /* one command at a time */
	struct rnic_dma ring;
	struct rnic_dma completions;
	u16 next;
	u8 log_slots;
	u32 token;
};

struct rnic_dev;

struct rnic_eq {
	struct rnic_dev *dev;
	struct rnic_dma ring;
	spinlock_t lock; /* consumer, and the life of what handlers look up */
	u32 eqn;
	u32 consumer;
	u8 log_entries;
	bool created;
	int irq;
	char name[24];
};

struct rnic_dev {
	struct ib_device ibdev;
	struct pci_dev *pdev;
	void __iomem *registers;
	void __iomem *doorbells; /* page 0, the kernel's */
	phys_addr_t doorbells_at;
	struct rnic_device_limits limits;
	u64 features;
	u32 version;
	u32 port_mtu;
	u8 mac[ETH_ALEN];

	struct rnic_command_queue commands;
	struct rnic_dma qp_table, cq_table, srq_table, key_table, rd_atomic_table;
	u8 log_qps, log_cqs, log_srqs, log_keys;
	u32 max_pds;

	struct rnic_eq *eqs;
	unsigned int eq_count;
	unsigned int vectors;

	struct xarray qps, cqs, srqs, keys, pds, xrcds, doorbell_pages;
	u32 next_qpn, next_cqn, next_srqn, next_key, next_pdn, next_xrcdn, next_page;
	u8 key_byte;

	struct notifier_block netdev_notifier;
	struct work_struct rescan;
	bool registered;
	/* Set once and for ever when the device does not answer any more. */
	bool dead;
};

struct rnic_ucontext {
	struct ib_ucontext ibucontext;
	struct rdma_user_mmap_entry *doorbell;
	u32 doorbell_page;
};

struct rnic_mmap_entry {
	struct rdma_user_mmap_entry rdma_entry;
	phys_addr_t address;
};

struct rnic_pd {
	struct ib_pd ibpd;
	u32 pdn;
};

/* A domain of extended connections. */
struct rnic_xrcd {
	struct ib_xrcd ibxrcd;
	u32 xrcdn;
};

/* Memory as the device is told of it, with the lists that have to live as long. */
struct rnic_page_list {
	struct rnic_page_list_fields fields;
	struct rnic_dma list;
	struct rnic_dma *inner;
	size_t inner_count;
};

/* A process' pinned memory and its page list. */
struct rnic_user_memory {
	struct ib_umem *umem;
	struct rnic_page_list pages;
};

struct rnic_mr {
	struct ib_mr ibmr;
	struct rnic_user_memory memory;
	u32 key;
	int access;
	/* Of a region that work requests give its memory. */
	struct rnic_dma fast_list;
	u32 max_pages, pages;
};

struct rnic_mw {
	struct ib_mw ibmw;
};

struct rnic_srq {
	struct ib_srq ibsrq;
	u32 srqn;
	u8 log_slots;
	u8 log_stride;
	u32 max_sge;
	/* Of processes. */
	struct rnic_user_memory wqe_ring, index_ring;
	/* Of the kernel. */
	spinlock_t lock; /* producer, free slots and wr_ids */
	struct rnic_dma wqes, indices;
	u64 *wr_ids;
	u16 *next_free;
	u16 first_free;
	u16 producer;
	u32 free_slots;
};

struct rnic_cq {
	struct ib_cq ibcq;
	struct rnic_eq *eq;
	u32 cqn;
	u8 log_entries;
	u8 arm_sequence; /* of kernel queues; counted by the event */
	/* Of processes. */
	struct rnic_user_memory ring;
	struct ib_umem *record_umem;
	/* Of the kernel. */
	spinlock_t lock; /* consumer and ring */
	struct rnic_dma memory;
	struct rnic_cqe *cqes;
	struct rnic_consumer_record *record;
	u32 consumer;
};

/* What a kernel user has posted into one ring. */
struct rnic_work_queue {
	spinlock_t lock; /* producer, consumer and wr_ids */
	void *ring;
	u64 *wr_ids;
	u8 *slots; /* of the send queue: slots of the WQE that begins here */
	u16 producer;
	u16 consumer;
	u8 log_entries;
	u8 log_stride; /* of the receive queue */
	u32 max_sge;
};

struct rnic_ah {
	struct ib_ah ibah;
	struct rnic_address_vector av;
};

struct rnic_qp {
	struct ib_qp ibqp;
	u32 qpn;
	u8 type; /* RNIC_QP_TYPE_* */
	bool signal_all;
	struct ib_qp_cap cap;
	/* Of processes. */
	struct rnic_user_memory sq_ring, rq_ring;
	/* Of the kernel. */
	struct rnic_dma sq_memory, rq_memory;
	struct rnic_work_queue sq, rq;
};

static inline struct rnic_dev *to_rnic(struct ib_device *ibdev)
{
	return container_of(ibdev, struct rnic_dev, ibdev);
}

static inline struct rnic_ucontext *to_rnic_ucontext(struct ib_ucontext *context)
{
	return container_of(context, struct rnic_ucontext, ibucontext);
}

static inline struct rnic_pd *to_rnic_pd(struct ib_pd *pd)
{
	return container_of(pd, struct rnic_pd, ibpd);
}

static inline struct rnic_xrcd *to_rnic_xrcd(struct ib_xrcd *xrcd)
{
	return container_of(xrcd, struct rnic_xrcd, ibxrcd);
}

static inline struct rnic_mr *to_rnic_mr(struct ib_mr *mr)
{
	return container_of(mr, struct rnic_mr, ibmr);
}

static inline struct rnic_cq *to_rnic_cq(struct ib_cq *cq)
{
	return container_of(cq, struct rnic_cq, ibcq);
}

static inline struct rnic_ah *to_rnic_ah(struct ib_ah *ah)
{
	return container_of(ah, struct rnic_ah, ibah);
}

static inline struct rnic_qp *to_rnic_qp(struct ib_qp *qp)
{
	return container_of(qp, struct rnic_qp, ibqp);
}

static inline struct rnic_srq *to_rnic_srq(struct ib_srq *srq)
{
	return container_of(srq, struct rnic_srq, ibsrq);
}

static inline u32 rnic_read(struct rnic_dev *dev, u32 offset)
{
	return readl(dev->registers + offset);
}

static inline void rnic_write(struct rnic_dev *dev, u32 offset, u32 value)
{
	writel(value, dev->registers + offset);
}

#define RNIC_SEGMENTS_A_SLOT (RNIC_WQE_SLOT_BYTES / RNIC_WQE_SEGMENT_BYTES)
#define RNIC_DATAGRAM_SEGMENTS (sizeof(struct rnic_datagram_segment) / RNIC_WQE_SEGMENT_BYTES)

static inline u32 rnic_slots_of(u32 segments)
{
	return DIV_ROUND_UP(segments, RNIC_SEGMENTS_A_SLOT);
}

/* Each of its work requests says where its packet goes. */
static inline bool rnic_is_datagram(const struct rnic_qp *qp)
{
	return qp->type == RNIC_QP_TYPE_UD || qp->type == RNIC_QP_TYPE_GSI;
}

/* The phase that an entry of a ring has once it is written. */
static inline u32 rnic_phase(u32 index, u8 log_entries)
{
	return 1 ^ ((index >> log_entries) & 1);
}

/* memory.c */
int rnic_dma_alloc(struct rnic_dev *dev, struct rnic_dma *dma, size_t bytes);
void rnic_dma_free(struct rnic_dev *dev, struct rnic_dma *dma);
struct rnic_page_list_fields rnic_one_run(dma_addr_t iova);
int rnic_tables_create(struct rnic_dev *dev);
void rnic_tables_destroy(struct rnic_dev *dev);
/* Rights by which peers make sure of what they wrote. */
#define RNIC_FLUSH_ACCESS (IB_ACCESS_FLUSH_GLOBAL | IB_ACCESS_FLUSH_PERSISTENT)
/* Rights that a region may have. */
#define RNIC_MR_ACCESS                                                                                        \
	(IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_WRITE | IB_ACCESS_REMOTE_READ | IB_ACCESS_REMOTE_ATOMIC | \
	 IB_ACCESS_MW_BIND | IB_ZERO_BASED | RNIC_FLUSH_ACCESS)
u32 rnic_device_access(int access);
int rnic_verbs_access(u32 access);
int rnic_choose_index(struct rnic_dev *dev, void *owner, u32 *index);
struct ib_mr *rnic_get_dma_mr(struct ib_pd *ibpd, int access);
#ifdef RNIC_HAS_DMAH
struct ib_mr *rnic_reg_user_mr(struct ib_pd *ibpd, u64 start, u64 length, u64 address, int access,
			       struct ib_dmah *dmah, struct ib_udata *udata);
#else
struct ib_mr *rnic_reg_user_mr(struct ib_pd *ibpd, u64 start, u64 length, u64 address, int access,
			       struct ib_udata *udata);
#endif
int rnic_dereg_mr(struct ib_mr *ibmr, struct ib_udata *udata);

/* registration.c */
u32 rnic_max_fast_pages(const struct rnic_dev *dev);
struct ib_mr *rnic_rereg_user_mr(struct ib_mr *ibmr, int flags, u64 start, u64 length, u64 address, int access,
				 struct ib_pd *ibpd, struct ib_udata *udata);
struct ib_mr *rnic_alloc_mr(struct ib_pd *ibpd, enum ib_mr_type type, u32 max_pages);
int rnic_map_mr_sg(struct ib_mr *ibmr, struct scatterlist *sg, int entries, unsigned int *offset);
int rnic_alloc_mw(struct ib_mw *ibmw, struct ib_udata *udata);
int rnic_dealloc_mw(struct ib_mw *ibmw);

/* page_list.c */
int rnic_user_memory_get(struct rnic_dev *dev, struct rnic_user_memory *memory, u64 start, u64 bytes, u64 address,
			 int access);
int rnic_user_ring_get(struct rnic_dev *dev, struct rnic_user_memory *memory, u64 start, u64 bytes);
void rnic_user_memory_put(struct rnic_dev *dev, struct rnic_user_memory *memory);

/* command.c */
int rnic_commands_start(struct rnic_dev *dev);
void rnic_commands_stop(struct rnic_dev *dev);
int rnic_command(struct rnic_dev *dev, u8 opcode, const void *body, size_t body_bytes, void *answer,
		 size_t answer_bytes);
int rnic_command_destroy(struct rnic_dev *dev, u8 opcode, u32 number);
void rnic_mark_dead(struct rnic_dev *dev, const char *why);
const char *rnic_diagnostic_sentence(u32 number);

/* event.c */
int rnic_events_start(struct rnic_dev *dev);
void rnic_events_stop(struct rnic_dev *dev);
void rnic_eq_drain(struct rnic_eq *eq);
struct rnic_eq *rnic_completion_eq(struct rnic_dev *dev, u32 vector);

/* netdev.c */
int rnic_netdev_start(struct rnic_dev *dev);
void rnic_netdev_stop(struct rnic_dev *dev);

/* device.c */
void rnic_set_operations(struct rnic_dev *dev);

/* context.c */
int rnic_alloc_ucontext(struct ib_ucontext *context, struct ib_udata *udata);
void rnic_dealloc_ucontext(struct ib_ucontext *context);
void rnic_disassociate_ucontext(struct ib_ucontext *context);
int rnic_mmap(struct ib_ucontext *context, struct vm_area_struct *vma);
void rnic_mmap_free(struct rdma_user_mmap_entry *entry);
int rnic_alloc_pd(struct ib_pd *ibpd, struct ib_udata *udata);
int rnic_dealloc_pd(struct ib_pd *ibpd, struct ib_udata *udata);
int rnic_alloc_xrcd(struct ib_xrcd *ibxrcd, struct ib_udata *udata);
int rnic_dealloc_xrcd(struct ib_xrcd *ibxrcd, struct ib_udata *udata);

/* address.c */
int rnic_put_address(struct rnic_address_vector *av, const struct rdma_ah_attr *ah);
void rnic_get_address(const struct rnic_address_vector *av, struct rdma_ah_attr *ah);
int rnic_create_ah(struct ib_ah *ibah, struct rdma_ah_init_attr *attr, struct ib_udata *udata);
int rnic_query_ah(struct ib_ah *ibah, struct rdma_ah_attr *attr);
int rnic_destroy_ah(struct ib_ah *ibah, u32 flags);
int rnic_attach_mcast(struct ib_qp *ibqp, union ib_gid *gid, u16 lid);
int rnic_detach_mcast(struct ib_qp *ibqp, union ib_gid *gid, u16 lid);

/* completion_queue.c */
int rnic_create_cq(struct ib_cq *ibcq, const struct ib_cq_init_attr *attr, struct uverbs_attr_bundle *attrs);
int rnic_destroy_cq(struct ib_cq *ibcq, struct ib_udata *udata);
int rnic_poll_cq(struct ib_cq *ibcq, int count, struct ib_wc *wc);
int rnic_req_notify_cq(struct ib_cq *ibcq, enum ib_cq_notify_flags flags);
void rnic_cq_forget(struct rnic_cq *cq, u32 qpn, struct ib_srq *srq);

/* resize.c */
#ifdef RNIC_RESIZES_USER_CQS
int rnic_resize_cq(struct ib_cq *ibcq, unsigned int entries, struct ib_udata *udata);
#else
int rnic_resize_cq(struct ib_cq *ibcq, int entries, struct ib_udata *udata);
#endif
int rnic_modify_cq(struct ib_cq *ibcq, u16 count, u16 period);

/* counters.c */
struct rdma_hw_stats *rnic_alloc_hw_port_stats(struct ib_device *ibdev, u32 port);
int rnic_get_hw_stats(struct ib_device *ibdev, struct rdma_hw_stats *stats, u32 port, int index);

/* shared_receive.c */
int rnic_create_srq(struct ib_srq *ibsrq, struct ib_srq_init_attr *init, struct ib_udata *udata);
int rnic_destroy_srq(struct ib_srq *ibsrq, struct ib_udata *udata);
int rnic_modify_srq(struct ib_srq *ibsrq, struct ib_srq_attr *attr, enum ib_srq_attr_mask mask, struct ib_udata *udata);
int rnic_query_srq(struct ib_srq *ibsrq, struct ib_srq_attr *attr);
int rnic_post_srq_recv(struct ib_srq *ibsrq, const struct ib_recv_wr *wr, const struct ib_recv_wr **bad);
u64 rnic_srq_free_slot(struct rnic_srq *srq, u16 slot);

/* queue_pair.c */
int rnic_create_qp(struct ib_qp *ibqp, struct ib_qp_init_attr *attr, struct ib_udata *udata);
int rnic_modify_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask, struct ib_udata *udata);
int rnic_query_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask, struct ib_qp_init_attr *init);
int rnic_destroy_qp(struct ib_qp *ibqp, struct ib_udata *udata);

/* work_queue.c */
int rnic_work_queues_create(struct rnic_dev *dev, struct rnic_qp *qp);
void rnic_work_queues_destroy(struct rnic_dev *dev, struct rnic_qp *qp);
void rnic_work_queues_reset(struct rnic_qp *qp);
u16 rnic_room(const struct rnic_work_queue *queue);
u32 rnic_position(const struct rnic_work_queue *queue, u16 index);
void rnic_ring_doorbell(struct rnic_qp *qp, u32 offset, u16 producer);
bool rnic_work_completed(struct rnic_qp *qp, const struct rnic_cqe *cqe, struct ib_wc *wc);

/* send.c */
int rnic_post_send(struct ib_qp *ibqp, const struct ib_send_wr *wr, const struct ib_send_wr **bad);

/* receive.c */
void rnic_put_receive(struct rnic_data_segment *data, u8 log_stride, const struct ib_recv_wr *wr);
int rnic_post_recv(struct ib_qp *ibqp, const struct ib_recv_wr *wr, const struct ib_recv_wr **bad);

#endif /* RNIC_H */
