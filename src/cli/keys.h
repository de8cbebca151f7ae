/* keys.h - what was typed on a terminal, one key at a time.
 *
 * A terminal sends bytes: a letter is itself, an arrow is a sequence that begins with the byte of
 * the Escape key. Whether Escape was pressed is known only when nothing follows it at once, so
 * whoever reads waits KEYS_ESCAPE_MS and then calls weir__cli_keys_end.
 *
 * Must stay true: whatever bytes come, the decoder needs a bounded amount of memory, and a key that
 * it does not know is CLI_KEY_OTHER, never text.
 */
#ifndef WEIR_CLI_KEYS_H
#define WEIR_CLI_KEYS_H

#include "base/utf8.h"

enum { KEYS_ESCAPE_MS = 50 };

typedef enum cli_key_kind {
    CLI_KEY_TEXT, /* a character that can be seen: `text` has it */
    CLI_KEY_ENTER,
    CLI_KEY_ESCAPE,
    CLI_KEY_BACKSPACE,
    CLI_KEY_CLEAR,  /* Ctrl-U: the whole line  */
    CLI_KEY_REDRAW, /* Ctrl-L                  */
    CLI_KEY_UP,
    CLI_KEY_DOWN,
    CLI_KEY_PAGE_UP,
    CLI_KEY_PAGE_DOWN,
    CLI_KEY_HOME,
    CLI_KEY_END,
    CLI_KEY_OTHER,
} cli_key_kind;

typedef struct cli_key {
    cli_key_kind kind;
    char text[WEIR_UTF8_BYTES_MAX];
    size_t text_bytes;
} cli_key;

/*   START --ESC--> ESCAPE --[--> CSI --final--> START
 *     |              |  \--O--> SS3 --any----> START
 *     |              \--ESC--> ESCAPE (one Escape was pressed); any other byte: START
 *     \--lead byte of UTF-8--> CHARACTER --its last byte--> START */
typedef enum cli_keys_state {
    KEYS_START,
    KEYS_ESCAPE,
    KEYS_CSI,
    KEYS_SS3,
    KEYS_CHARACTER,
} cli_keys_state;

/* Zeroed, nothing was typed. */
typedef struct cli_keys {
    cli_keys_state state;
    char bytes[16]; /* of a sequence or a character; what does not fit is no known key */
    size_t bytes_count;
} cli_keys;

/* One more byte. true: that was a key. */
bool weir__cli_keys_feed(cli_keys *k, unsigned char byte, cli_key *key);
/* Whether more bytes are expected. */
bool weir__cli_keys_waits(const cli_keys *k);
/* Nothing follows. true: so what came before was a key. */
bool weir__cli_keys_end(cli_keys *k, cli_key *key);

#endif
