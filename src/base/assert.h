/* assert.h - assertions that stay on: a broken invariant ends the process where it broke.
 * WEIR_DEBUG_ASSERT is for what costs more than a comparison: on in debug and test builds only.
 */
#ifndef WEIR_BASE_ASSERT_H
#define WEIR_BASE_ASSERT_H

_Noreturn void weir__assert_failed(const char *condition, const char *file, int line);

#define WEIR_ASSERT(condition)                                                                     \
    ((condition) ? (void)0 : weir__assert_failed(#condition, __FILE__, __LINE__))

#ifdef WEIR_DEBUG
#define WEIR_DEBUG_ASSERT(condition) WEIR_ASSERT(condition)
#else
#define WEIR_DEBUG_ASSERT(condition) ((void)0)
#endif

#endif
