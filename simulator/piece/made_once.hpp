#pragma once
// Runs an initialisation once, although several threads request it.

#include <atomic>

namespace mgplan::simulator {

/// Like std::once_flag, which however makes a system call to wake waiters at each initialisation: with thousands of small values, most of
/// them without waiters, that is a tenth of a short search.
class MadeOnce {
public:
    /// The first caller runs `make`; concurrent callers wait. If `make` throws, the next caller tries again.
    template <class Make>
    void call(const Make& make) {
        for (int now = state_.load(std::memory_order_acquire); now != kMade; now = state_.load(std::memory_order_acquire)) {
            if (now == kBeingMade)
                state_.wait(kBeingMade);
            else if (state_.compare_exchange_strong(now, kBeingMade))
                return make_now(make);
        }
    }

private:
    static constexpr int kNew = 0, kBeingMade = 1, kMade = 2;

    template <class Make>
    void make_now(const Make& make) {
        try {
            make();
        } catch (...) {
            leave(kNew);
            throw;
        }
        leave(kMade);
    }
    /// Sequentially consistent: a weaker store could be reordered with the count of waiting threads.
    void leave(int state) {
        state_.store(state, std::memory_order_seq_cst);
        state_.notify_all();
    }

    std::atomic<int> state_{kNew};
};

}  // namespace mgplan::simulator
