#pragma once
// What one of several threads makes and all have.

#include <atomic>

namespace mgplan::simulator {

/// Like std::once_flag. That one asks the kernel to wake whoever waits each time something is made: with thousands of small things, most of
/// which nobody waits for, this is a tenth of a short search.
class MadeOnce {
public:
    /// The first that comes makes it, and who comes meanwhile waits. Where making throws, the next one tries again.
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
    /// In one order with the count of waiting threads, which a weaker store could pass.
    void leave(int state) {
        state_.store(state, std::memory_order_seq_cst);
        state_.notify_all();
    }

    std::atomic<int> state_{kNew};
};

}  // namespace mgplan::simulator
