#include "cli/interrupt_watch.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace mgplan::cli {
namespace {

std::atomic<bool> heard = false;
std::atomic<const char*> heard_text = "";
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<const char*>::is_always_lock_free);

extern "C" void note_interrupt(int /*signal*/) {
    heard = true;
    // write() alone may be called here, and errno is not ours. A failure cannot be reported.
    const int before = errno;
    const char* const text = heard_text;
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text, std::strlen(text));
    errno = before;
}

}  // namespace

InterruptWatch::InterruptWatch(const char* text, std::initializer_list<int> signals) {
    heard = false;
    heard_text = text;
    struct sigaction action {};
    action.sa_handler = note_interrupt;
    action.sa_flags = static_cast<int>(SA_RESETHAND) | SA_RESTART;
    for (const int number : signals) {
        struct sigaction before {};
        ::sigaction(number, &action, &before);
        before_.emplace_back(number, before);
    }
}

InterruptWatch::~InterruptWatch() {
    for (const auto& [number, before] : before_) ::sigaction(number, &before, nullptr);
}

const std::atomic<bool>& InterruptWatch::interrupted() const {
    return heard;
}

}  // namespace mgplan::cli
