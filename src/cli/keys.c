/* keys.c - bytes of a terminal as keys; see keys.h for the states. */
#include "cli/keys.h"

#include <string.h>

enum { BYTE_ESCAPE = 0x1b, BYTE_DELETE = 0x7f };

/* To `state`, with nothing collected yet. */
static void keys_enter(cli_keys *k, cli_keys_state state)
{
    k->state = state;
    k->bytes_count = 0;
}

static bool key_is(cli_key *key, cli_key_kind kind)
{
    *key = (cli_key){ .kind = kind };
    return true;
}

/* The last byte of a sequence, as xterm, the console and tmux send it. */
static cli_key_kind kind_of_letter(unsigned char byte)
{
    switch (byte) {
    case 'A':
        return CLI_KEY_UP;
    case 'B':
        return CLI_KEY_DOWN;
    case 'H':
        return CLI_KEY_HOME;
    case 'F':
        return CLI_KEY_END;
    case 'M':
        return CLI_KEY_ENTER; /* of the number pad */
    default:
        return CLI_KEY_OTHER;
    }
}

/* "5" of ESC [ 5 ~; what follows a semicolon are keys that were held down. */
static cli_key_kind kind_of_number(const cli_keys *k)
{
    if (k->bytes_count == 0 || (k->bytes_count > 1 && k->bytes[1] != ';')) {
        return CLI_KEY_OTHER;
    }
    switch (k->bytes[0]) {
    case '1':
    case '7':
        return CLI_KEY_HOME;
    case '4':
    case '8':
        return CLI_KEY_END;
    case '5':
        return CLI_KEY_PAGE_UP;
    case '6':
        return CLI_KEY_PAGE_DOWN;
    default:
        return CLI_KEY_OTHER;
    }
}

static bool keys_control(cli_keys *k, unsigned char byte, cli_key *key)
{
    switch (byte) {
    case BYTE_ESCAPE:
        keys_enter(k, KEYS_ESCAPE);
        return false;
    case '\r':
    case '\n':
        return key_is(key, CLI_KEY_ENTER);
    case '\b':
    case BYTE_DELETE:
        return key_is(key, CLI_KEY_BACKSPACE);
    case 'U' & 0x1f:
        return key_is(key, CLI_KEY_CLEAR);
    case 'L' & 0x1f:
        return key_is(key, CLI_KEY_REDRAW);
    case 'P' & 0x1f:
        return key_is(key, CLI_KEY_UP);
    case 'N' & 0x1f:
        return key_is(key, CLI_KEY_DOWN);
    case 'B' & 0x1f:
        return key_is(key, CLI_KEY_PAGE_UP);
    case 'F' & 0x1f:
        return key_is(key, CLI_KEY_PAGE_DOWN);
    default:
        return key_is(key, CLI_KEY_OTHER);
    }
}

/* A character is whole as soon as it can be decoded, and none as soon as it never can be. */
static bool keys_character(cli_keys *k, unsigned char byte, cli_key *key)
{
    uint32_t code = 0;

    if (k->bytes_count > 0 && (byte & 0xc0) != 0x80) {
        keys_enter(k, KEYS_START); /* cut off; this byte begins something else */
        return weir__cli_keys_feed(k, byte, key) || key_is(key, CLI_KEY_OTHER);
    }
    k->bytes[k->bytes_count++] = (char)byte;
    const size_t bytes = weir__utf8_decode(k->bytes, k->bytes + k->bytes_count, &code);
    if (bytes == 0 && k->bytes_count < WEIR_UTF8_BYTES_MAX && byte != 0xc0 && byte != 0xc1) {
        return false;
    }
    *key = (cli_key){ .kind = CLI_KEY_OTHER };
    /* What a filter shows must be visible: no C1 controls, nothing that is hidden. */
    if (bytes > 0 && code >= 0xa0 && !weir__utf8_hidden(code)) {
        key->kind = CLI_KEY_TEXT;
        key->text_bytes = bytes;
        memcpy(key->text, k->bytes, bytes);
    }
    keys_enter(k, KEYS_START);
    return true;
}

static bool keys_start(cli_keys *k, unsigned char byte, cli_key *key)
{
    if (byte < 0x20 || byte == BYTE_DELETE) {
        return keys_control(k, byte, key);
    }
    if (byte >= 0xc0 && byte < 0xf8) {
        keys_enter(k, KEYS_CHARACTER);
        return keys_character(k, byte, key);
    }
    if (byte >= 0x80) {
        return key_is(key, CLI_KEY_OTHER);
    }
    *key = (cli_key){ .kind = CLI_KEY_TEXT, .text = { (char)byte }, .text_bytes = 1 };
    return true;
}

static bool keys_escape(cli_keys *k, unsigned char byte, cli_key *key)
{
    switch (byte) {
    case '[':
        keys_enter(k, KEYS_CSI);
        return false;
    case 'O':
        keys_enter(k, KEYS_SS3);
        return false;
    case BYTE_ESCAPE:
        return key_is(key, CLI_KEY_ESCAPE); /* the second one may begin a sequence */
    default:
        keys_enter(k, KEYS_START);
        return key_is(key, CLI_KEY_OTHER); /* Alt and a key */
    }
}

static bool keys_csi(cli_keys *k, unsigned char byte, cli_key *key)
{
    if (byte == BYTE_ESCAPE) {
        keys_enter(k, KEYS_ESCAPE); /* the sequence was cut off */
        return false;
    }
    if (byte >= 0x20 && byte < 0x40) {
        /* The rest is dropped: no known key sends this many bytes. */
        if (k->bytes_count < sizeof k->bytes) {
            k->bytes[k->bytes_count++] = (char)byte;
        }
        return false;
    }
    const bool known = k->bytes_count < sizeof k->bytes;
    const cli_key_kind kind = byte == '~' ? kind_of_number(k) : kind_of_letter(byte);
    keys_enter(k, KEYS_START);
    return key_is(key, known ? kind : CLI_KEY_OTHER);
}

bool weir__cli_keys_feed(cli_keys *k, unsigned char byte, cli_key *key)
{
    switch (k->state) {
    case KEYS_START:
        return keys_start(k, byte, key);
    case KEYS_ESCAPE:
        return keys_escape(k, byte, key);
    case KEYS_CSI:
        return keys_csi(k, byte, key);
    case KEYS_SS3:
        keys_enter(k, KEYS_START);
        return key_is(key, kind_of_letter(byte));
    case KEYS_CHARACTER:
        break;
    }
    return keys_character(k, byte, key);
}

bool weir__cli_keys_waits(const cli_keys *k)
{
    return k->state != KEYS_START;
}

bool weir__cli_keys_end(cli_keys *k, cli_key *key)
{
    const cli_keys_state state = k->state;

    keys_enter(k, KEYS_START);
    return state != KEYS_START &&
           key_is(key, state == KEYS_ESCAPE ? CLI_KEY_ESCAPE : CLI_KEY_OTHER);
}
