// One training step of a GPT-2-small-shaped model (124 million parameters) on one CPU rank. Steps run on request, one for
// each line on standard input, so that tests/bench/torch_step_ratio can take turns with PyTorch in one run:
//   step     runs a step and prints its seconds, its seconds of processor time, and its loss
//   profile  prints the seconds of each kind of op since the last profile
//
// Usage: gpt2_step_bench [--layers 12] [--sequence 512] [--batch 1] [--precision fp32]

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <iostream>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/core.h>

#include "model/training/rank_trainer.hpp"
#include "runtime/comm/in_process/in_process_world.hpp"
#include "runtime/cpu/cpu_device.hpp"
#include "tests/support/small_models.hpp"

namespace mgplan {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// Seconds that this process has computed for, whatever else the machine did.
double processor_seconds() {
    return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

/// Charges the time from one op's report to the next one's to the first: ops report right before they run.
class OpTimes final : public model::OpListener {
public:
    void on_op(const model::OpRecord& record) override {
        close();
        current_ = record.name;
    }
    /// Ends the running op, and leaves what follows to nobody.
    void close() {
        const auto now = Clock::now();
        if (!current_.empty()) seconds_[current_] += std::chrono::duration<double>(now - begin_).count();
        begin_ = now;
        current_ = {};
    }
    void print() {
        std::vector<std::pair<std::string_view, double>> sorted(seconds_.begin(), seconds_.end());
        std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
        for (const auto& [name, seconds] : sorted) fmt::print("{:<24} {:8.3f}\n", name, seconds);
        fmt::print("end\n");
        seconds_.clear();
    }

private:
    std::map<std::string_view, double> seconds_;
    std::string_view current_;
    Clock::time_point begin_;
};

struct Options {
    std::int64_t layers = 12, sequence = 512, batch = 1;
    Precision precision = Precision::fp32;
};

Options read_options(int count, char** words) {
    Options options;
    for (int i = 1; i + 1 < count; i += 2) {
        const std::string_view name = words[i];
        if (name == "--layers") options.layers = std::atoll(words[i + 1]);
        if (name == "--sequence") options.sequence = std::atoll(words[i + 1]);
        if (name == "--batch") options.batch = std::atoll(words[i + 1]);
        if (name == "--precision") options.precision = parse_precision(words[i + 1]).value_or(options.precision);
    }
    return options;
}

model::TrainingTask task_for(const Options& options) {
    model::TrainingTask task;
    task.model = tests::gpt_of("gpt2-small", {.layers = options.layers,
                                              .hidden = 768,
                                              .ffn = 3072,
                                              .heads = 12,
                                              .head_dim = 64,
                                              .vocab = 50257,
                                              .vocab_divisor = 1,
                                              .max_positions = 1024});
    task.model.tied_embeddings = true;
    task.batch = {options.batch, options.sequence};
    task.training.precision = options.precision;
    task.layout.micro_batch = options.batch;
    task.layout.split = std::make_shared<const StageSplit>(automatic_stage_split(options.layers, 0, 1, 1).value());
    task.optimizer.adam.weight_decay = 0.1;
    return task;
}

void serve(const Options& options) {
    const model::TrainingTask task = task_for(options);
    runtime::InProcessWorld world(1);
    runtime::run_ranks(world, [&](int rank) {
        runtime::CpuDevice device;
        OpTimes times;
        model::RankTrainer trainer(task, device, world.view(rank));
        device.set_listener(&times);
        const auto source = [](std::int64_t sequence, std::span<std::int32_t> tokens) {
            for (std::size_t i = 0; i < tokens.size(); ++i) {
                tokens[i] = static_cast<std::int32_t>((static_cast<std::uint64_t>(sequence) * 7919 + i * 104'729) % 50'257);
            }
        };
        fmt::print("ready\n");
        std::fflush(stdout);
        for (std::string line; std::getline(std::cin, line);) {
            if (line == "step") {
                const auto begin = Clock::now();
                const double computed = processor_seconds();
                const auto report = trainer.step(source, 1e-4);
                times.close();
                fmt::print("{:.6f} {:.6f} {:.6f}\n", seconds_since(begin), processor_seconds() - computed, report.loss);
            } else if (line == "profile") {
                times.print();
            }
            std::fflush(stdout);
        }
    });
}

}  // namespace
}  // namespace mgplan

int main(int count, char** words) {
    mgplan::serve(mgplan::read_options(count, words));
}
