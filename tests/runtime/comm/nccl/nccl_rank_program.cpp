// One rank of a training run over NCCL, as its environment tells, with CUDA and NCCL faked (fake_cuda.cpp, fake_nccl.cpp);
// run_over_nccl_test starts it. Prints rank 0's report as lines: a loss for each step, then whether all is as predicted.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "plan/text/errors.hpp"
#include "plan/text/text.hpp"
#include "runtime/calibration/calibrate.hpp"
#include "runtime/comm/nccl/nccl_world.hpp"
#include "runtime/cpu/cpu_device.hpp"
#include "runtime/cuda/cuda_device.hpp"
#include "runtime/training_run/rendezvous_job.hpp"
#include "runtime/training_run/training_run.hpp"
#include "tests/gpu/open_sends.hpp"
#include "tests/runtime/comm/nccl/fake_cuda.hpp"
#include "tests/runtime/comm/nccl/small_nccl_run.hpp"

namespace mgplan::tests {
namespace {

class FakeCard final : public runtime::RankDevice {
public:
    FakeCard(int rank, const model::KernelTraits& traits, const runtime::ArenaScript* script) : device_(0, rank, traits, script, false) {}
    model::Device& device() override { return device_; }
    const model::MemoryUse& memory() const override { return device_.memory(); }
    std::int64_t reserved_bytes() const override { return device_.reserved_bytes(); }
    std::optional<std::int64_t> free_bytes() override { return device_.free_bytes(); }
    runtime::SteppedMemory* arena() override { return device_.arena(); }
    std::unique_ptr<model::DeviceMarks> make_marks() override { return device_.make_marks(); }
    const std::byte* uncounted(std::span<const std::byte> bytes) override { return device_.uncounted(bytes); }
    runtime::cuda::CudaDevice& card() { return device_; }

private:
    runtime::cuda::CudaDevice device_;
};

class FakeCards final : public runtime::RankDevices {
public:
    std::string text() const override { return "a fake GPU"; }
    const model::KernelTraits& traits() const override { return traits_; }
    runtime::MachineMemory memory() const override {
        const char* const bytes = std::getenv("FAKE_CARD_BYTES");
        return {bytes != nullptr ? std::atoll(bytes) : std::int64_t{1} << 40, "the fake GPU has"};
    }
    bool runs_at_once() const override { return false; }
    std::unique_ptr<runtime::RankDevice> make(int rank, const runtime::ArenaScript* script) const override {
        return std::make_unique<FakeCard>(rank, traits_, script);
    }
    std::unique_ptr<runtime::NcclWorldInterface> connect(runtime::RankDevice& device, int rank, int size,
                                                         const runtime::Bootstrap& bootstrap,
                                                         const runtime::NcclOptions& options) const override {
        return runtime::cuda::make_nccl_world(static_cast<FakeCard&>(device).card(), rank, size, bootstrap, options);
    }

private:
    model::KernelTraits traits_ = runtime::CpuDevice::kernel_traits();
};

[[noreturn]] void end_now(const std::string& text) {
    fmt::print(stderr, "mgplan: {}\n", text);
    std::_Exit(4);
}

runtime::RendezvousOptions meeting_of_the_test() {
    const auto environment = runtime::process_environment();
    auto meeting = runtime::rendezvous_options(runtime::rank_from_environment({}, environment), environment);
    meeting.join_deadline = std::chrono::seconds{40};
    // Shorter than in earnest, so that tests are.
    meeting.patience = std::chrono::milliseconds{500};
    return meeting;
}

/// Prints what rank 0 measures, and in the end all of it. "interrupt": behind the first all-gather, as by a signal; "pp": the ranks are a
/// pipeline, whose all-to-all is known.
int calibrate(const std::string& fault) {
    const auto meeting = meeting_of_the_test();
    const FakeCards cards;
    std::atomic<bool> interrupted = false;
    runtime::CalibrateOptions options;
    options.seconds = 1e-5;
    options.most_bytes = 4096;
    options.interrupt = &interrupted;
    options.work.grouped_products.insert({2, 8, 4, 16, true, false, Dtype::fp32});
    options.on_measured = [&](const ClusterCalibration&, const runtime::CalibrationProgress& progress) {
        fmt::print("{}\n", progress.text);
        std::fflush(stdout);
        interrupted = fault == "interrupt" && progress.text.find("all_gather") != std::string::npos;
    };
    ClusterCalibration found;
    if (fault == "resume" && meeting.rank == 0) found.collectives.push_back({"tp", "all_reduce", 2, 4096, {1, 0, 3}});
    if (fault == "pp" && meeting.rank == 0) found.collectives.push_back({"pp", "all_to_all", 2, 4096, {1, 0, 3}});
    const ParallelSizes tp{2, 2, 1, 1, 2, 1, AxisOrder{}, 1}, pp{2, 1, 1, 1, 1, 2, AxisOrder{}, 1};
    const ParallelSizes& sizes = fault == "pp" ? pp : tp;
    const bool whole = runtime::calibrate_over_nccl(cards, meeting, end_now, runtime::groups_of(sizes), options, found);
    if (meeting.rank == 0) fmt::print("{}\n", calibration_to_json(found).dump());
    return whole ? 0 : 4;
}

/// What nccl_check.cpp asks of cards, in both groups of a pipeline of all ranks.
int open_sends() {
    const auto meeting = meeting_of_the_test();
    const FakeCards cards;
    bool right = true;
    runtime::RendezvousJob job(meeting, end_now);
    job.run([&] {
        const auto device = cards.make(meeting.rank, nullptr);
        const auto world = job.connect(cards, *device, std::chrono::seconds{10});
        const model::World view = world->view();
        std::vector<std::int32_t> ranks(static_cast<std::size_t>(view.size));
        std::iota(ranks.begin(), ranks.end(), 0);
        for (const char* name : {"pp", "pp-backward"}) {
            const auto group = view.join(name, ranks);
            for (int i = 0; i < 2; ++i) right = receives_behind_open_sends(device->device(), *group, 1000) && right;
        }
        job.rendezvous().leave();
    });
    fmt::print("{}\n", right ? "as sent" : "not as sent");
    return right ? 0 : 1;
}

/// `scopes`: of CUDA graphs, or "none"; empty: eager, with a pool.
int run(const std::string& layout, const std::string& fault, const std::string& scopes) {
    const auto meeting = meeting_of_the_test();
    runtime::TrainingRunOptions options = small_nccl_run(layout);
    options.devices = std::make_shared<FakeCards>();
    if (!scopes.empty()) {
        options.memory = runtime::MemoryMode::arena;
        options.steps = 4;  // eager, captured, replayed twice
        for (const auto& each : split(scopes, ',')) {
            if (each != "none") options.task.layout.cuda_graphs.add(parse_cuda_graph_scope(each).value());
        }
    }
    const bool hangs = fault.starts_with("hang");
    options.deadline = std::chrono::milliseconds{hangs && meeting.rank == 0 ? 700 : 60'000};
    // Until somebody stops it.
    if (fault == "work" || hangs) options.steps = 1'000'000;
    options.on_step = [&](std::int64_t step, const runtime::StepValues& values) {
        if (fault != "none") fmt::print("step {} of loss {}\n", step, values.loss);
        std::fflush(stdout);
    };
    options.on_stuck = end_now;
    // One that neither dies nor goes on: its partners wait.
    class Hang final : public runtime::RankObserver {
    public:
        explicit Hang(bool in_replay) : in_replay_(in_replay) {}
        void on_ready(model::Device& /*device*/, const model::World& /*world*/) override {}
        void on_op(const model::OpRecord& record) override {
            if (in_replay_ && record.name != "graph replay") return;
            if (++ops_ == (in_replay_ ? 26 : 200)) std::this_thread::sleep_for(std::chrono::hours{1});
        }
        void on_collective(const model::CollectiveRecord& /*record*/) override {}

    private:
        bool in_replay_;
        int ops_ = 0;
    };
    if (hangs && meeting.rank == 1) options.observe = [&](int /*rank*/) { return std::make_unique<Hang>(fault == "hang_in_replay"); };
    const auto values = runtime::run_over_nccl(options, meeting);
    if (!values) return 0;
    for (const auto& step : values->steps) fmt::print("{:.17g}\n", step.loss);
    fmt::print("{} ranks {}\n", values->ranks.size(), values->as_predicted ? "as predicted" : "not as predicted");
    const runtime::RankValues& first = values->ranks.front();
    if (scopes.empty()) {
        nlohmann::json timed;
        for (const auto& op : first.ops) timed["ops"].push_back({op.op, op.count, op.seconds});
        for (const auto& step : values->steps) timed["steps"].push_back({step.ops_timed, step.seconds});
        fmt::print("{}\n", timed.dump());
        return 0;
    }
    fmt::print("{} graphs\n{} pieces\n{} operations captured\n",
               first.measured.graphs.forward_graphs + first.measured.graphs.backward_graphs, first.graph_pieces, captured_operations());
    return 0;
}

}  // namespace
}  // namespace mgplan::tests

int main(int argc, char** argv) {
    try {
        const std::string what = argc > 1 ? argv[1] : "", fault = argc > 2 ? argv[2] : "none", scopes = argc > 3 ? argv[3] : "";
        if (what == "open_sends") return mgplan::tests::open_sends();
        return what == "calibrate" ? mgplan::tests::calibrate(fault) : mgplan::tests::run(what, fault, scopes);
    } catch (const mgplan::ConfigError& error) {
        fmt::print(stderr, "mgplan: {}\n", error.what());
        return 2;
    } catch (const mgplan::RunError& error) {
        fmt::print(stderr, "mgplan: {}\n", error.what());
        return 4;
    }
}
