/* fuzz.h - what every fuzz target here is: a function that is given bytes and aborts when a promise
 * does not hold for them. libFuzzer calls it with bytes of its own; replay.c with kept ones.
 */
#ifndef WEIR_TESTS_FUZZ_H
#define WEIR_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
