/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names that look the same: macOS decomposes the characters of names (NFD), others compose (NFC).
 */
#ifndef CARTON_BASE_COMPOSED_H
#define CARTON_BASE_COMPOSED_H

#include <stdbool.h>

/*
 * Do two names in UTF-8 seem to differ only in how their characters are composed? The answer is a
 * guess, for messages: without a table of compositions, the function compares only syllables of
 * Hangul with their letters. It takes any other composed character for any letter with marks.
 * False for equal names.
 */
bool composed_alike(const char *a, const char *b);

#endif
