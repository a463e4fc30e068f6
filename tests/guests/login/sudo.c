/* Runs a command as root, for every user: a test guest has no secrets. Options of sudo's own are left out.
 *
 *   sudo [OPTION…] COMMAND [ARGUMENT…]
 */
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int at = 1;
    static char *shell[] = { "/bin/sh", NULL };
    while (at < argc && argv[at][0] == '-')
        at++;
    if (setgid(0) != 0 || setuid(0) != 0) {
        perror("sudo");
        return 1;
    }
    char **command = at < argc ? argv + at : shell;
    execvp(command[0], command);
    perror(command[0]);
    return 127;
}
