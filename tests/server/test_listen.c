/* SPDX-License-Identifier: Apache-2.0 */
#include "server/listen.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

Test(listen, a_free_port_is_told_and_then_taken)
{
    Error error;
    int fd, second;
    uint16_t port, other;
    cr_assert(listen_open("127.0.0.1", 0, &fd, &port, &error), "%s", error.text);
    cr_expect(port > 0);
    cr_expect_not(listen_open("127.0.0.1", port, &second, &other, &error));
    cr_expect_eq((int)error.code, ERR_IO);
    cr_expect(strstr(error.text, "127.0.0.1 port") != NULL, "%s", error.text);
    close(fd);
}

Test(listen, what_others_reach_is_not_local)
{
    static const struct {
        const char *host;
        bool is_local;
    } cases[] = {{"127.0.0.1", true}, {"127.3.2.1", true},         {"::1", true}, {"0.0.0.0", false},
                 {"::", false},       {"::ffff:127.0.0.1", true}, {"unix:/tmp/lw-listen-local", true}};
    Error error;
    int fd;
    uint16_t port;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (!listen_open(cases[i].host, 0, &fd, &port, &error)) {
            cr_expect(strchr(cases[i].host, ':') != NULL, "%s", error.text); /* a machine without IPv6 */
            continue;
        }
        cr_expect_eq(listen_is_local(fd), cases[i].is_local, "%s", cases[i].host);
        close(fd);
        listen_remove(cases[i].host);
    }
    cr_expect_not(listen_is_local(-1));
}

Test(listen, hosts_that_are_wrong_are_named)
{
    Error error;
    int fd;
    uint16_t port;
    char lengthy[300] = "unix:/tmp/";
    memset(lengthy + 10, 'x', sizeof lengthy - 11);
    cr_expect_not(listen_open("not a host name", 1, &fd, &port, &error));
    cr_expect(eq(str, error.param, "host"));
    cr_expect_not(listen_open(lengthy, 1, &fd, &port, &error));
    cr_expect_not(listen_open("unix:", 1, &fd, &port, &error));
    cr_expect_not(listen_open("unix:/nonexistent/folder/s", 1, &fd, &port, &error));
    cr_expect_eq((int)error.code, ERR_IO);
}

Test(listen, dead_unix_sockets_are_replaced_and_live_ones_are_not)
{
    char folder[] = "/tmp/lw-listen-XXXXXX", host[64];
    Error error;
    int fd, second;
    uint16_t port;
    struct stat st;
    cr_assert(mkdtemp(folder) != NULL);
    snprintf(host, sizeof host, "unix:%s/s", folder);
    cr_assert(listen_open(host, 0, &fd, &port, &error), "%s", error.text);
    cr_expect_eq(port, 0);
    cr_assert_eq(stat(host + 5, &st), 0);
    cr_expect_eq((unsigned)(st.st_mode & 07), 0u, "others may connect");
    cr_expect_not(listen_open(host, 0, &second, &port, &error));
    close(fd);
    cr_expect(listen_open(host, 0, &fd, &port, &error), "%s", error.text);
    close(fd);
    listen_remove(host);
    cr_expect_neq(stat(host + 5, &st), 0);
    rmdir(folder);
}
