// SPDX-License-Identifier: Apache-2.0
/* Operations of consumers at queues that limit their consumers, or that wait for consumers before they dispatch. */
#ifndef ADMISSION_OPERATIONS_H
#define ADMISSION_OPERATIONS_H

#define SEATED(n) {{-1, -1, -1, 0, -1, -1, [SB_SETTING_SEATS] = (n) + 1}, 0}
#define GATED(n) {{-1, -1, -1, 0, -1, -1, [SB_SETTING_CONSUMERS_BEFORE_DISPATCH] = (n)}, 0}

void take_a_seat(void);     /* under the topology lock */
void one_waits(void);       /* for the second consumer */
void second_comes(void);    /* and gets what it can hold */
void both_come(void);       /* all of it: for a process that is killed in between */
void first_looks(void);     /* when the second has opened the gate */
void get_seats(void);       /* the queue had none */
void give_seats_away(void); /* it had one */
void begin_and_end_gate(void);

#endif
