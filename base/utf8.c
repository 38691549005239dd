/* SPDX-License-Identifier: Apache-2.0 */
#include "base/utf8.h"

#include <string.h>

Utf8Kind utf8_step(const uint8_t *bytes, size_t n, size_t *ret_len)
{
    uint8_t lead = bytes[0];
    *ret_len = 1;
    if (lead < 0x80) return UTF8_WHOLE;
    if (lead < 0xC2 || lead > 0xF4) return UTF8_DEAD;
    size_t need = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    /* The second byte carries the limits against overlong forms, surrogates and code points beyond U+10FFFF. */
    uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    for (size_t i = 1; i < need; i++) {
        *ret_len = i;
        if (i == n) return UTF8_CUT;
        if (bytes[i] < low || bytes[i] > high) return UTF8_DEAD;
        low = 0x80;
        high = 0xBF;
    }
    *ret_len = need;
    return UTF8_WHOLE;
}

bool utf8_is_control(const uint8_t *bytes, size_t n)
{
    if (n == 1) return bytes[0] < 0x20 || bytes[0] == 0x7F;
    if (n == 2) return bytes[0] == 0xC2 && bytes[1] < 0xA0;
    return n == 3 && bytes[0] == 0xE2 && bytes[1] == 0x80 && bytes[2] >= 0xA8 && bytes[2] <= 0xAE;
}

bool utf8_valid(const uint8_t *bytes, size_t n)
{
    size_t i = 0;
    while (i < n) {
        uint64_t eight;
        if (n - i >= sizeof eight) {
            memcpy(&eight, bytes + i, sizeof eight);
            if (!(eight & 0x8080808080808080u)) {
                i += sizeof eight;
                continue;
            }
        }
        size_t len;
        if (utf8_step(bytes + i, n - i, &len) != UTF8_WHOLE) return false;
        i += len;
    }
    return true;
}

size_t utf8_repair(const uint8_t *bytes, size_t n, bool last, char *out, size_t *ret_cut)
{
    size_t written = 0;
    *ret_cut = 0;
    for (size_t i = 0, len; i < n; i += len) {
        Utf8Kind kind = utf8_step(bytes + i, n - i, &len);
        if (kind == UTF8_CUT && !last) {
            *ret_cut = len;
            break;
        }
        const void *from = kind == UTF8_WHOLE ? (const void *)(bytes + i) : "\xEF\xBF\xBD";
        size_t take = kind == UTF8_WHOLE ? len : 3;
        if (out) memcpy(out + written, from, take);
        written += take;
    }
    return written;
}
