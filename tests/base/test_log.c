/* SPDX-License-Identifier: Apache-2.0 */
/* Lines are read back from a pipe that stands in for stderr; every test runs in a process of its own. */
#include "base/log.h"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int pipe_ends[2];
static int kept_stderr;

static void redirect(void)
{
    cr_assert_eq(pipe(pipe_ends), 0);
    kept_stderr = dup(STDERR_FILENO);
    cr_assert(dup2(pipe_ends[1], STDERR_FILENO) >= 0);
    fcntl(pipe_ends[0], F_SETFL, O_NONBLOCK);
}

/* What was written since; "" for nothing. */
static const char *read_back(void)
{
    static char text[65536];
    ssize_t n = read(pipe_ends[0], text, sizeof text - 1);
    text[n > 0 ? n : 0] = '\0';
    return text;
}

static void restore(void)
{
    dup2(kept_stderr, STDERR_FILENO);
}

/* From " level=" on: the time differs. */
static const char *after_time(const char *line)
{
    int year, month, day, hour, minute, second, millisecond, n = 0;
    sscanf(line, "time=%4d-%2d-%2dT%2d:%2d:%2d.%3dZ%n", &year, &month, &day, &hour, &minute, &second, &millisecond, &n);
    return n && year > 2020 ? line + n : "no time";
}

Test(log, lines_that_cannot_be_written_are_counted_and_told_of)
{
    redirect();
    int full = open("/dev/full", O_WRONLY);
    dup2(full, STDERR_FILENO);
    errno = 77;
    log_info("gone");
    log_info("gone");
    int kept_errno = errno;
    uint64_t lost = log_lost();
    dup2(pipe_ends[1], STDERR_FILENO);
    log_info("back");
    char text[512];
    snprintf(text, sizeof text, "%.500s", read_back());
    log_info("again");
    const char *again = after_time(read_back());
    restore();
    cr_expect_eq(kept_errno, 77);
    cr_expect_eq(lost, 2);
    const char *second = strchr(text, '\n');
    cr_assert_not_null(second);
    cr_expect_not_null(strstr(text, "msg=\"back\""));
    cr_expect_str_eq(after_time(second + 1), " level=warn msg=\"2 lines of the log were lost\"\n");
    cr_expect_str_eq(again, " level=info msg=\"again\"\n");
    close(full);
}

Test(log, text_lines)
{
    redirect();
    log_error("cannot bind port %d", 80);
    char plain[256], with_request[256], escaped[256];
    snprintf(plain, sizeof plain, "%s", after_time(read_back()));
    log_write(LOG_WARN, 17, "client left");
    snprintf(with_request, sizeof with_request, "%s", after_time(read_back()));
    log_info("a \"b\" \\ \n \x01 \xC3\xA9 \xFF \xED\xA0\x80 \xF0\x9F");
    snprintf(escaped, sizeof escaped, "%s", after_time(read_back()));
    restore();
    cr_expect_str_eq(plain, " level=error msg=\"cannot bind port 80\"\n");
    cr_expect_str_eq(with_request, " level=warn request=17 msg=\"client left\"\n");
    cr_expect_str_eq(escaped, " level=info msg=\"a \\\"b\\\" \\\\ \\n \\u0001 \xC3\xA9 \xEF\xBF\xBD "
                              "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD \xEF\xBF\xBD\"\n");
}

Test(log, json_lines_parse)
{
    redirect();
    log_configure(LOG_INFO, LOG_JSON);
    log_write(LOG_INFO, 5, "tab\t quote\" back\\ bad\xFF");
    cJSON *line = cJSON_Parse(read_back());
    restore();
    cr_assert_not_null(line);
    cr_expect_str_eq(cJSON_GetStringValue(cJSON_GetObjectItem(line, "msg")), "tab\t quote\" back\\ bad\xEF\xBF\xBD");
    cr_expect_str_eq(cJSON_GetStringValue(cJSON_GetObjectItem(line, "level")), "info");
    cr_expect_eq(cJSON_GetNumberValue(cJSON_GetObjectItem(line, "request")), 5);
    cr_expect_eq(strlen(cJSON_GetStringValue(cJSON_GetObjectItem(line, "time"))), strlen("2026-11-30T01:02:03.456Z"));
    cJSON_Delete(line);
}

Test(log, levels)
{
    redirect();
    log_debug("no");
    log_configure(LOG_ERROR, LOG_TEXT);
    log_warn("no");
    bool silent = !*read_back();
    log_error("yes");
    bool loud = *read_back();
    log_configure(LOG_DEBUG, LOG_TEXT);
    log_debug("yes");
    bool debug = *read_back();
    restore();
    cr_expect(silent && loud && debug);
    cr_expect(log_enabled(LOG_DEBUG));
}

Test(log, long_messages_are_cut_and_stay_one_valid_line)
{
    static char text[20000];
    redirect();
    log_configure(LOG_INFO, LOG_JSON);
    bool good = true;
    for (size_t lead = 0; lead < 4; lead++) {
        memset(text, 'a', lead);
        for (size_t i = lead; i + 4 < sizeof text; i += 4) memcpy(text + i, "\xF0\x9F\x98\x8A", 5);
        log_info("%s", text);
        const char *line = read_back();
        cJSON *parsed = cJSON_Parse(line);
        good &= parsed && strchr(line, '\n') == line + strlen(line) - 1 && strstr(line, "...\"}");
        cJSON_Delete(parsed);
    }
    memset(text, 1, sizeof text - 1); /* six bytes each once escaped */
    log_info("%s", text);
    const char *line = read_back();
    good &= strlen(line) <= 4096 && strstr(line, "...\"}\n");
    restore();
    cr_expect(good);
}

Test(log, keeps_errno)
{
    redirect();
    errno = EDOM;
    log_info("x");
    int after = errno;
    close(STDERR_FILENO);
    errno = ERANGE;
    log_info("to nobody");
    int closed = errno;
    restore();
    cr_expect_eq(after, EDOM);
    cr_expect_eq(closed, ERANGE);
}

static void *write_lines(void *name)
{
    for (int i = 0; i < 50; i++) log_info("%s%s%s%s", (char *)name, (char *)name, (char *)name, (char *)name);
    return NULL;
}

Test(log, lines_of_threads_do_not_mix)
{
    redirect();
    pthread_t threads[4];
    static char names[4][64];
    for (int i = 0; i < 4; i++) {
        memset(names[i], 'a' + i, sizeof names[i] - 1);
        pthread_create(&threads[i], NULL, write_lines, names[i]);
    }
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    int lines = 0, whole = 0;
    for (const char *text; *(text = read_back());)
        for (char *save, *line = strtok_r((char *)text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
            const char *message = strstr(line, "msg=\"");
            lines++;
            whole += message && strspn(message + 5, (char[]){message[5], 0}) == 252 && message[257] == '"';
        }
    restore();
    cr_expect_eq(lines, 200);
    cr_expect_eq(whole, 200);
}

static const LogField fields[] = {
    {"id", LOG_WORD, .word = "a\"b"},
    {"none", LOG_WORD, .word = NULL},
    {"n", LOG_WHOLE, .whole = 18446744073709551615u},
    {"ms", LOG_REAL, .real = 1.23456},
    {"nan", LOG_REAL, .real = 0.0 / 0.0},
    {"gone", LOG_FLAG, .whole = 1},
};

Test(log, fields_follow_the_message)
{
    char text[512], json[512];
    redirect();
    log_fields(LOG_INFO, 3, "request", fields, 6);
    snprintf(text, sizeof text, "%s", after_time(read_back()));
    log_configure(LOG_INFO, LOG_JSON);
    log_fields(LOG_INFO, 0, "request", fields, 6);
    snprintf(json, sizeof json, "%.500s", read_back());
    log_configure(LOG_WARN, LOG_JSON);
    log_fields(LOG_INFO, 0, "request", fields, 6);
    bool silent = !*read_back();
    restore();
    cr_expect(silent);
    cr_expect_str_eq(text, " level=info request=3 msg=\"request\" id=\"a\\\"b\" n=18446744073709551615 ms=1.235 "
                           "nan=null gone=true\n");
    const char *tail = strstr(json, ",\"id\"");
    cr_assert_not_null(tail);
    cr_expect_str_eq(tail, ",\"id\":\"a\\\"b\",\"n\":18446744073709551615,\"ms\":1.235,\"nan\":null,\"gone\":true}\n");
}

Test(log, fields_that_do_not_fit_end_the_line)
{
    static char word[5000];
    char line[8192];
    bool good = true;
    redirect();
    log_configure(LOG_INFO, LOG_JSON);
    for (size_t n = 3900; n < 4200; n++) {
        memset(word, 'w', n);
        word[n] = '\0';
        LogField many[] = {{"word", LOG_WORD, .word = word}, {"n", LOG_WHOLE, .whole = 12345}};
        log_fields(LOG_INFO, 0, "m", many, 2);
        snprintf(line, sizeof line, "%.8000s", read_back());
        cJSON *parsed = cJSON_Parse(line);
        bool is_cut = strstr(line, "...\"}") != NULL;
        good &= parsed && strlen(line) <= 4096 && (is_cut ? n > 3950 : true) &&
                (strstr(line, "12345") == NULL || strlen(line) > n);
        cJSON_Delete(parsed);
    }
    restore();
    cr_expect(good);
}
