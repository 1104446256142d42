// SPDX-License-Identifier: Apache-2.0
/* The operations of channels, for operations.c: on the queue "q" of the child, with a channel of the child. */
#ifndef CHANNEL_OPERATIONS_H
#define CHANNEL_OPERATIONS_H

void open_channel(void);
void channel_consumes(void);       /* four at most */
void channel_consumes_twice(void); /* two consumers, five in all */
void channel_consumes_settled(void);
void channel_consumes_foreign(void);
void channel_claims(void);
void channel_takes_one(void); /* after it consumes */
void channel_takes_three(void);
void channel_next(void);
void channel_gets(void);
void channel_waits_in_get(void);
void channel_acks_one(void);
void channel_acks_all(void);
void channel_requeues_all(void);
void channel_returns_one(void);
void channel_cancels(void);
void channel_closes(void);
void channel_is_limited(void); /* and not limited any more */

#endif
