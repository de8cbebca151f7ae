/* random.h - random bytes from the kernel (buffered per thread, dropped after a fork) and UUIDv7.
 */
#ifndef WEIR_BASE_RANDOM_H
#define WEIR_BASE_RANDOM_H

#include <stddef.h>
#include <stdint.h>

void weir__random_bytes(void *out, size_t bytes);
uint64_t weir__random_u64(void);

enum { WEIR_UUID_TEXT_BYTES = 37 };
/* RFC 9562 version 7 for that time, lower case, NUL-terminated. */
void weir__uuid7(int64_t wall_us, char out[WEIR_UUID_TEXT_BYTES]);

#endif
