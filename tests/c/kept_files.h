// SPDX-License-Identifier: Apache-2.0
/* Files of segments that are used again.
 *
 * The kernel takes as long to allocate the 25 MiB of a segment, and to free them again, as all the rest of a trial
 * takes. A program of many trials therefore keeps the files of a broker that it removes. The next broker gets these
 * files, after all bytes in them that are not 0 have become 0: of a segment, those of chunks that were opened.
 *
 * A process takes a kept file by renaming it, so two processes that add a segment at the same time never get the same
 * file. A process that is killed while it clears a file leaves that file under a name of the broker, as it leaves a file
 * that it was making.
 */
#ifndef KEPT_FILES_H
#define KEPT_FILES_H

#include <stdbool.h>
#include <stdint.h>

/* From now on, files are kept in the name of this process; the processes that it starts use them, too. */
void kept_files_begin(void);
/* Removes the files that are kept. Only the process that began calls it. */
void kept_files_end(void);
/* Removes a broker, and keeps the files of its segments. No other process may have the broker mapped. */
void kept_files_take(const char *path);
/* Gives a kept file of this segment the name `to`. All its bytes are 0. False: no file of that length is kept. */
bool kept_files_give(const char *suffix, uint64_t bytes, const char *to);

#endif
