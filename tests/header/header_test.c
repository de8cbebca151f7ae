/* header_test.c - includes nothing but weir.h before it uses what the header declares. Goal: the
 * header stands alone, in C11 and in C++20, and what callers have compiled into them keeps its
 * size. Built twice by header_test.sh, with every warning an error.
 */
#include "weir.h"

#include <stdio.h>

#ifdef __cplusplus
#define CHECK(condition) static_assert(condition, #condition)
#else
#define CHECK(condition) _Static_assert(condition, #condition)
#endif

/* Callers have this size compiled into them: new members come out of `reserved`. */
CHECK(sizeof(weir_error) == 2048);
CHECK(sizeof(weir_str) == sizeof(void *) + sizeof(size_t));
CHECK(WEIR_VERSION_NUMBER ==
      WEIR_VERSION_MAJOR * 10000 + WEIR_VERSION_MINOR * 100 + WEIR_VERSION_PATCH);

/* Every initialiser, with a designated member behind it as users write them. */
static const weir_options options = { WEIR_OPTIONS_INIT, .store_url = "memory:" };
static const weir_new_event event = { WEIR_NEW_EVENT_INIT, .flags = 0 };
static const weir_expectation expectation = { WEIR_EXPECTATION_INIT, .expect = WEIR_EXPECT_NONE };
static const weir_key_change key_change = { WEIR_KEY_CHANGE_INIT, .change = WEIR_KEY_RESERVE };
static const weir_append_request request = { WEIR_APPEND_REQUEST_INIT, .events_count = 0 };
static const weir_read_options read_options = { WEIR_READ_OPTIONS_INIT, .fields = WEIR_HAS_LIMIT };
static const weir_log_options log_options = { WEIR_LOG_OPTIONS_INIT, .flags = WEIR_READ_FOLLOW };
static const weir_streams_options streams_options = { WEIR_STREAMS_OPTIONS_INIT, .closed = 1 };
static const weir_close_options close_options = { WEIR_CLOSE_OPTIONS_INIT, .expect = 0 };

static const weir_reaction reaction = { WEIR_REACTION_INIT, .retries = WEIR_NONE };
static const weir_lane lane = { WEIR_LANE_INIT, .threads = 2 };
static const weir_engine_options engine_options = { WEIR_ENGINE_OPTIONS_INIT, .lost_max = 3 };

static const weir_targets_options targets = { WEIR_TARGETS_OPTIONS_INIT, .priority = 1 };
static const weir_parked_options parked = { WEIR_PARKED_OPTIONS_INIT, .flags = 0 };
static const weir_lock_options lock = { WEIR_LOCK_OPTIONS_INIT, .lease_us = 1000000 };
static const weir_appended appended = { WEIR_APPENDED_INIT, .flags = 0 };

static const weir_tables_options tables_options = { WEIR_TABLES_OPTIONS_INIT, .url = "sqlite:x" };
static const weir_value value = { WEIR_VALUE_INIT, .kind = WEIR_VALUE_TEXT };
static const weir_order order = { WEIR_ORDER_INIT, .flags = WEIR_ORDER_DESCENDING };
static const weir_claim claim = { WEIR_CLAIM_INIT, .flags = WEIR_CLAIM_NOWAIT };
static const weir_finish finish = { WEIR_FINISH_INIT, .kind = WEIR_FINISH_DONE };

/* A text of a literal: as an argument, in an initialiser, and assigned. */
static size_t str_len(weir_str text)
{
    return text.len;
}

static int literals_are_texts(void)
{
    const weir_new_event placed = { WEIR_NEW_EVENT_INIT, .name = WEIR_STR("OrderPlaced") };
    weir_str text = WEIR_STR("");
    const size_t empty = text.len;
    text = WEIR_STR("a\0b");
    return str_len(WEIR_STR("order-1")) == 7 && placed.name.len == 11 && empty == 0 &&
           text.len == 3;
}

static int failed;

static void check_size(int number, const char *type, uint32_t size, size_t expected)
{
    const int good = size == expected;
    printf("%s %d - the initialiser of %s sets its size\n", good ? "ok" : "not ok", number, type);
    failed |= !good;
}

int main(void)
{
    printf("1..22\n");
    check_size(1, "weir_options", options.size, sizeof(weir_options));
    check_size(2, "weir_new_event", event.size, sizeof(weir_new_event));
    check_size(3, "weir_expectation", expectation.size, sizeof(weir_expectation));
    check_size(4, "weir_key_change", key_change.size, sizeof(weir_key_change));
    check_size(5, "weir_append_request", request.size, sizeof(weir_append_request));
    check_size(6, "weir_read_options", read_options.size, sizeof(weir_read_options));
    check_size(7, "weir_log_options", log_options.size, sizeof(weir_log_options));
    check_size(8, "weir_streams_options", streams_options.size, sizeof(weir_streams_options));
    check_size(9, "weir_close_options", close_options.size, sizeof(weir_close_options));
    check_size(10, "weir_tables_options", tables_options.size, sizeof(weir_tables_options));
    check_size(11, "weir_value", value.size, sizeof(weir_value));
    check_size(12, "weir_order", order.size, sizeof(weir_order));
    check_size(13, "weir_claim", claim.size, sizeof(weir_claim));
    check_size(14, "weir_finish", finish.size, sizeof(weir_finish));
    check_size(15, "weir_reaction", reaction.size, sizeof(weir_reaction));
    check_size(16, "weir_lane", lane.size, sizeof(weir_lane));
    check_size(17, "weir_engine_options", engine_options.size, sizeof(weir_engine_options));
    check_size(18, "weir_targets_options", targets.size, sizeof(weir_targets_options));
    check_size(19, "weir_parked_options", parked.size, sizeof(weir_parked_options));
    check_size(20, "weir_lock_options", lock.size, sizeof(weir_lock_options));
    check_size(21, "weir_appended", appended.size, sizeof(weir_appended));
    const int good = literals_are_texts();
    printf("%s 22 - WEIR_STR makes a text of a literal\n", good ? "ok" : "not ok");
    failed |= !good;
    return failed;
}
