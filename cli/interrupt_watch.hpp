#pragma once
// Ctrl-C stops long work at its next suitable place.

#include <atomic>
#include <csignal>
#include <initializer_list>
#include <utility>
#include <vector>

namespace mgplan::cli {

/// While it lives, the first SIGINT sets interrupted(); the next one ends the program as usual. At most one object exists.
class InterruptWatch {
public:
    /// `heard`: a line for standard error when the first one comes; a literal.
    explicit InterruptWatch(const char* heard, std::initializer_list<int> signals = {SIGINT});
    ~InterruptWatch();
    InterruptWatch(const InterruptWatch&) = delete;
    InterruptWatch& operator=(const InterruptWatch&) = delete;

    [[nodiscard]] const std::atomic<bool>& interrupted() const;

private:
    std::vector<std::pair<int, struct sigaction>> before_;
};

}  // namespace mgplan::cli
