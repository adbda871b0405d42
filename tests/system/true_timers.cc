// For LD_PRELOAD before libfaketime, which takes an absolute time of timerfd_settime() to be wall
// time whatever the timer's clock is (0.9.10): a timer on the monotonic clock would be refused or
// never fire. The clocks that are stepped in tests leave it alone.

#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

extern "C" int timerfd_settime(int fd, int flags, const itimerspec* value,
                               itimerspec* old) noexcept {
  return static_cast<int>(::syscall(SYS_timerfd_settime, fd, flags, value, old));
}
