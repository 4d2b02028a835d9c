// Kernels that are shorter than the host takes to issue them, on a card of numbers alone.

#include "runtime/calibration/repeat.hpp"

#include <algorithm>
#include <memory>
#include <stdexcept>

#include <gtest/gtest.h>

#include "model/device/graph_capture.hpp"
#include "tests/support/host_device.hpp"

namespace mgplan::runtime::repeat_test {
namespace {

/// When host and device are done with what they have to do, seconds. The host takes 10 us for a launch.
struct Clocks {
    double host = 0, device = 0;
    bool captures = false;
    std::int64_t captured = 0, launched = 0;

    void launch(double seconds) {
        if (captures) {
            ++captured;
            return;
        }
        ++launched;
        host += 10e-6;
        device = std::max(host, device) + seconds;
    }
};

class Graph final : public model::CapturedWork {
public:
    Graph(Clocks& clocks, double seconds, std::int64_t nodes) : clocks_(clocks), seconds_(seconds), nodes_(nodes) {}
    void launch() override { clocks_.launch(static_cast<double>(nodes_) * seconds_); }
    std::int64_t nodes() const override { return nodes_; }

private:
    Clocks& clocks_;
    double seconds_;
    std::int64_t nodes_;
};

class Capture final : public model::WorkCapture {
public:
    Capture(Clocks& clocks, double seconds) : clocks_(clocks), seconds_(seconds) {}
    void begin() override { clocks_.captures = true; }
    std::unique_ptr<model::CapturedWork> end() override {
        clocks_.captures = false;
        return std::make_unique<Graph>(clocks_, seconds_, clocks_.captured);
    }
    void abandon() noexcept override { clocks_.captures = false; }
    bool runs_at_once() const override { return at_once; }

    bool at_once = false;

private:
    Clocks& clocks_;
    double seconds_;
};

class Card final : public model::Device {
public:
    /// Kernels of so many seconds.
    explicit Card(double seconds)
        : Device(model::DeviceKind::cpu, {}, std::make_unique<tests::HostAllocator>(), nullptr),
          capture(clocks, seconds),
          seconds_(seconds) {}

    void launch() { clocks.launch(seconds_); }
    model::WorkCapture* work_capture() override { return captures ? &capture : nullptr; }
    std::unique_ptr<model::Stopwatch> make_stopwatch() override {
        class Watch final : public model::Stopwatch {
        public:
            explicit Watch(const Clocks& clocks) : clocks_(clocks) {}
            void start() override { begin_ = std::max(clocks_.host, clocks_.device); }
            void stop() override { end_ = std::max(clocks_.host, clocks_.device); }
            double seconds() override { return end_ - begin_; }

        private:
            const Clocks& clocks_;
            double begin_ = 0, end_ = 0;
        };
        return std::make_unique<Watch>(clocks);
    }

    Clocks clocks;
    Capture capture;
    bool captures = true;

private:
    void do_write(void* /*to*/, const void* /*from*/, std::int64_t /*bytes*/) override {}
    void do_read(void* /*to*/, const void* /*from*/, std::int64_t /*bytes*/) override {}
    void do_zero(void* /*memory*/, std::int64_t /*bytes*/) override {}

    double seconds_;
};

double seconds_of(Card& card) {
    return repeat_without_host(card, 0, [&](std::int64_t) { card.launch(); }).seconds;
}

TEST(RepeatWithoutHost, SeesKernelsThatAreShorterThanALaunch) {
    Card card(2e-6);
    EXPECT_NEAR(repeat(card, 0, [&](std::int64_t) { card.launch(); }).seconds, 10e-6, 1e-6) << "the host alone";
    EXPECT_NEAR(seconds_of(card), 2e-6, 0.2e-6);
    EXPECT_GT(card.clocks.captured, 100);
}

TEST(RepeatWithoutHost, CapturesNothingThatIsLongOrCannotBeCaptured) {
    Card slow(1e-3);
    EXPECT_NEAR(seconds_of(slow), 1e-3, 0.02e-3);
    EXPECT_EQ(slow.clocks.captured, 0);
    Card plain(2e-6);
    plain.captures = false;
    EXPECT_NEAR(seconds_of(plain), 10e-6, 1e-6);
    Card host(2e-6);
    host.capture.at_once = true;
    EXPECT_NEAR(seconds_of(host), 10e-6, 1e-6);
    EXPECT_EQ(host.clocks.captured, 0);
}

TEST(RepeatWithoutHost, KeepsTheIssuedTimeWhereACaptureFails) {
    Card card(2e-6);
    const double seconds = repeat_without_host(card, 0, [&](std::int64_t) {
                               if (card.clocks.captures) throw std::runtime_error("an op reads values");
                               card.launch();
                           }).seconds;
    EXPECT_NEAR(seconds, 10e-6, 1e-6);
    EXPECT_FALSE(card.clocks.captures) << "it was abandoned";
}

}  // namespace
}  // namespace mgplan::runtime::repeat_test
