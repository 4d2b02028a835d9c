#pragma once
// Ctrl-C stops long work at its next suitable place.

#include <atomic>
#include <csignal>

namespace mgplan::cli {

/// While it lives, the first SIGINT sets interrupted(); the next one ends the program as usual. At most one object exists.
class InterruptWatch {
public:
    /// `heard`: a line printed to standard error on the first SIGINT; a literal.
    explicit InterruptWatch(const char* heard);
    ~InterruptWatch();
    InterruptWatch(const InterruptWatch&) = delete;
    InterruptWatch& operator=(const InterruptWatch&) = delete;

    [[nodiscard]] const std::atomic<bool>& interrupted() const;

private:
    struct sigaction before_ {};
};

}  // namespace mgplan::cli
