// Measures products and Llama-shaped layers on a GPU, as tests/gpu/torch_reference.py does for PyTorch on the same card:
//     gpu_all bench --card | --memory | --products | --layers FILE
// --card says what card, libraries and attention plans there are, --memory what a process takes of the card beside its tensors. FILE gets
// one JSON object, anew after each step, so that what was measured is there when the program is stopped. Exits 77 without a GPU.

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "model/communicator/recording_communicator.hpp"
#include "model/meta/meta_device.hpp"
#include "model/ops/elementwise.hpp"
#include "model/ops/matmul.hpp"
#include "model/training/rank_trainer.hpp"
#include "runtime/comm/in_process/in_process_world.hpp"
#include "runtime/cuda_loader/cuda_loader.hpp"
#include "tests/gpu/layers_task.hpp"
#include "tests/gpu/programs.hpp"

namespace mgplan {
namespace {

using Clock = std::chrono::steady_clock;
using model::MemoryCategory;
using model::Tensor;

double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

/// What the program writes.
class Report {
public:
    explicit Report(std::string file) : file_(std::move(file)) {}
    nlohmann::json values;

    /// Complete or as it was before, whenever the program is stopped.
    void save() const {
        const std::string part = file_ + ".part";
        std::ofstream stream(part);
        stream << values.dump(2) << '\n';
        stream.close();
        if (!stream) throw RunError(fmt::format("{} cannot be written", part));
        std::filesystem::rename(part, file_);
    }

private:
    std::string file_;
};

/// Random bf16 values in about [-1, 1): products of zeros run faster than those of numbers. A prime number of values, so
/// that rows differ, over and over.
Tensor random(model::Device& device, const model::Shape& shape) {
    static const std::vector<std::uint16_t> words = [] {
        std::vector<std::uint16_t> list(1'048'573);
        std::uint64_t state = 88172645463325252U;
        for (auto& word : list) {
            state = state * 6364136223846793005U + 1442695040888963407U;
            const float value = static_cast<float>(state >> 40) / static_cast<float>(1 << 23) - 1;
            std::uint32_t bits = 0;
            std::memcpy(&bits, &value, sizeof(bits));
            word = static_cast<std::uint16_t>(bits >> 16);
        }
        return list;
    }();
    Tensor tensor = device.empty(shape, Dtype::bf16, MemoryCategory::parameters, "values");
    const Tensor once = device.empty({static_cast<std::int64_t>(words.size())}, Dtype::bf16, MemoryCategory::workspace, "values once");
    device.write(once, words.data());
    auto* const begin = static_cast<std::byte*>(tensor.data());
    for (std::int64_t done = 0; done < tensor.bytes(); done += once.bytes()) {
        device.memory_operations()->copy(begin + done, static_cast<const std::byte*>(once.data()),
                                         std::min(once.bytes(), tensor.bytes() - done));
    }
    return tensor;
}

/// Seconds of one, by the algorithm that the device finds for it.
double seconds_of_product(model::Device& device, std::int64_t m, std::int64_t n, std::int64_t k, bool accumulate) {
    constexpr auto kTimed = model::ProductAlgorithm::timed;
    // Several sets of operands, so that the second-level cache does not hold them.
    constexpr std::size_t kSets = 3;
    std::vector<Tensor> a, b, out;
    for (std::size_t i = 0; i < kSets; ++i) {
        a.push_back(random(device, accumulate ? model::Shape{k, m} : model::Shape{m, k}));
        b.push_back(random(device, accumulate ? model::Shape{k, n} : model::Shape{n, k}));
        out.push_back(device.zeros({m, n}, Dtype::fp32, MemoryCategory::gradients, "sum"));
    }
    const auto once = [&](std::size_t i) {
        if (accumulate) {
            model::matmul_accumulate(a[i % kSets], b[i % kSets], {true, false}, out[i % kSets], kTimed);
        } else {
            (void)model::matmul(a[i % kSets], b[i % kSets], {false, true}, "product", kTimed);
        }
    };
    // The first microbatch of a step writes a gradient, which chooses for those that add to it.
    if (accumulate) model::matmul_write(a[0], b[0], {true, false}, out[0], kTimed);
    for (std::size_t i = 0; i < 10; ++i) once(i);
    device.synchronize();
    constexpr std::size_t kTogether = 10;
    std::vector<double> times;
    for (int round = 0; round < 9; ++round) {
        const auto start = Clock::now();
        for (std::size_t i = 0; i < kTogether; ++i) once(i);
        device.synchronize();
        times.push_back(seconds_since(start) / kTogether);
    }
    return median(times);
}

/// Chosen among the library's candidates by timing, and beside it with its first answer, as a deterministic device has it.
nlohmann::json measure_product(model::Device& device, model::Device& deterministic, std::int64_t m, std::int64_t n, std::int64_t k,
                               bool accumulate) {
    const double first = seconds_of_product(deterministic, m, n, k, accumulate), time = seconds_of_product(device, m, n, k, accumulate);
    const double flops = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
    fmt::print("{} x {} x {}{}: {:.0f} TFLOP/s, {:.0f} with the library's first answer\n", m, n, k, accumulate ? " into fp32" : "",
               flops / time / 1e12, flops / first / 1e12);
    return {{"m", m},
            {"n", n},
            {"k", k},
            {"accumulate_fp32", accumulate},
            {"microseconds", time * 1e6},
            {"tflops", flops / time / 1e12},
            {"first_tflops", flops / first / 1e12}};
}

void measure_products(runtime::CudaModule& module, Report& report) {
    const auto device = module.make_device(0, 0), deterministic = module.make_device(0, 0, true);
    for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{8192, 8192, 8192},
                                  {8192, 6144, 4096},
                                  {8192, 28672, 4096},
                                  {8192, 4096, 14336},
                                  {8192, 32000, 4096}}) {
        for (const auto& product :
             {measure_product(*device, *deterministic, m, n, k, false), measure_product(*device, *deterministic, n, k, m, true)}) {
            report.values["products"].push_back(product);
            report.save();
        }
        // What one keeps the other may want.
        device->trim();
        deterministic->trim();
    }
}

/// Forward and backward, 3 times the forward's; attention's causal half alone.
double model_flops_per_token(const ModelSpec& m, double sequence) {
    const auto hidden = static_cast<double>(m.hidden), width = static_cast<double>(m.heads * m.head_dim),
               kv_width = static_cast<double>(m.kv_heads * m.head_dim);
    const double weights = hidden * (width + 2 * kv_width) + width * hidden + 3 * hidden * static_cast<double>(m.ffn);
    const double attention = 2 * 2 * width * sequence / 2;
    return 3 * (static_cast<double>(m.layers) * (2 * weights + attention) + 2 * hidden * static_cast<double>(m.vocab));
}

/// Of weights as they are drawn, in nats a token: the last norm leaves `hidden` values of mean square 1, so each logit is about normal with
/// variance s^2 = hidden times that of the head's weights, and the mean of log(sum of exp(logits)) is ln(vocab) + s^2 / 2 (the mean of a
/// log-normal is exp(s^2 / 2)), from which the target's logit takes 0 on average.
double loss_of_drawn_weights(const ModelSpec& m) {
    return std::log(static_cast<double>(m.vocab)) + static_cast<double>(m.hidden) * m.init_deviation * m.init_deviation / 2;
}

nlohmann::json measure_layers(runtime::CudaModule& module) {
    const model::TrainingTask task = tests::layers_task();
    const auto tokens = [](std::int64_t sequence, std::span<std::int32_t> into) {
        auto state = static_cast<std::uint64_t>(sequence) * 7919 + 17;
        for (auto& token : into) {
            state = state * 6364136223846793005U + 1442695040888963407U;
            token = static_cast<std::int32_t>((state >> 33U) % 32000);
        }
    };
    runtime::InProcessWorld world(1);
    const auto device = module.make_device(0, 0);
    const auto begin = Clock::now();
    model::RankTrainer trainer(task, *device, world.view(0));
    fmt::print("weights made in {:.1f} s\n", seconds_since(begin));
    device->restart_high_water();
    std::vector<double> times;
    std::vector<double> losses;
    for (int step = 0; step < 13; ++step) {
        const auto start = Clock::now();
        losses.push_back(trainer.step(tokens, 1e-4).loss);
        device->synchronize();
        fmt::print("step {}: loss {:.4f}, {:.1f} ms\n", step, losses.back(), seconds_since(start) * 1e3);
        if (step >= 3) times.push_back(seconds_since(start));
    }
    const double time = median(times), all = tests::kSequence * tests::kSequences;
    const model::MemoryUse measured = device->memory();

    model::MetaDevice meta({.keep_allocations = false, .keep_ops = false, .stands_for = device->traits()});
    model::RankTrainer shapes(task, meta, model::recording_world(0, 1));
    meta.restart_high_water();
    (void)shapes.step(tokens, 1e-4);
    (void)shapes.step(tokens, 1e-4);
    nlohmann::json bytes;
    for (int i = 0; i < model::kMemoryCategories; ++i) {
        const auto index = static_cast<std::size_t>(i);
        bytes[std::string(to_string(static_cast<MemoryCategory>(i)))] = {{"predicted", meta.memory().high_water[index]},
                                                                         {"measured", measured.high_water[index]}};
    }
    return {{"model", task.model.name},
            {"sequence", tests::kSequence},
            {"micro_batch", tests::kSequences},
            {"milliseconds", time * 1e3},
            {"tokens_per_second", all / time},
            {"model_tflops", model_flops_per_token(task.model, tests::kSequence) * all / time / 1e12},
            {"first_loss", losses.front()},
            {"expected_first_loss", loss_of_drawn_weights(task.model)},
            {"last_loss", losses.back()},
            {"bytes", bytes},
            {"peak_predicted", meta.memory().peak},
            {"peak_measured", measured.peak},
            {"reserved", device->reserved_bytes()}};
}

/// Files of CUDA's libraries and the driver's that this process has loaded.
nlohmann::json loaded_libraries() {
    std::set<std::string> files;
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
        const auto path = line.find('/');
        if (path == std::string::npos) continue;
        const std::string name = line.substr(line.rfind('/') + 1);
        for (const char* start : {"libcuda", "libcublas", "libcudnn", "libnccl", "libnv", "libmgplan"}) {
            if (name.starts_with(start)) files.insert(line.substr(path));
        }
    }
    return files;
}

void describe_card(runtime::CudaModule& module, Report& report) {
    const auto card = module.cards().at(0);
    const auto versions = module.versions();
    report.values = {{"card", card.name},
                     {"architecture", card.traits.architecture},
                     {"memory_bytes", card.memory_bytes},
                     {"multiprocessors", card.multiprocessors},
                     {"cuda", versions.runtime},
                     {"driver", versions.driver},
                     {"cublas_lt", versions.cublas_lt},
                     {"cudnn", versions.cudnn},
                     {"nccl", versions.nccl}};
}

/// Bytes of the card that are gone behind each first use; what others hold is in all of them. Alone on the card.
nlohmann::json measure_memory(runtime::CudaModule& module) {
    const std::int64_t total = module.cards().at(0).memory_bytes;
    nlohmann::json steps = nlohmann::json::array();
    const auto device = module.make_device(0, 0);
    std::int64_t before = 0;
    const auto note = [&](const std::string& step) {
        device->trim();  // kept blocks are tensors' memory
        const std::int64_t taken = total - device->free_bytes() - device->reserved_bytes();
        fmt::print("{}: {} bytes taken, {} more than before\n", step, taken, taken - before);
        steps.push_back({{"step", step}, {"bytes", taken}});
        before = taken;
    };
    note("context");
    {
        const Tensor x = random(*device, {256, 256});
        (void)model::sum_of_squares(x);
        note("first kernel");
        (void)model::matmul(x, x, {false, true}, "product");
        note("first product");
        (void)module.probe(0);
        note("attention plans");
    }
    model::TrainingTask task = tests::layers_task();
    task.model.layers = 1;
    task.model.vocab = 1024;
    task.layout.split = std::make_shared<const StageSplit>(automatic_stage_split(1, 0, 1, 1).value());
    {
        runtime::InProcessWorld world(1);
        model::RankTrainer trainer(task, *device, world.view(0));
        const auto tokens = [](std::int64_t, std::span<std::int32_t> into) { std::fill(into.begin(), into.end(), 7); };
        (void)trainer.step(tokens, 1e-4);
    }
    note("all kernels of a training step");
    return steps;
}

int run(const std::string& what, const std::string& file) {
    runtime::CudaModule& module = runtime::cuda_module();
    Report report(file);
    describe_card(module, report);
    report.save();
    if (what == "--versions") return 0;
    if (what == "--card") {
        {
            const auto device = module.make_device(0, 0);
            const Tensor a = random(*device, {256, 256});
            (void)model::matmul(a, a, {false, true}, "product");
            device->synchronize();
        }
        report.values["libraries"] = loaded_libraries();
        report.save();
        const auto probe = module.probe(0);
        report.values["reads_pageable_memory"] = probe.reads_pageable_memory;
        report.values["cudnn_device"] = probe.cudnn_device;
        for (const auto& [shape, outcome] : probe.attention) {
            report.values["attention"].push_back({{"shape", shape}, {"outcome", outcome}});
            fmt::print("{}: {}\n", shape, outcome);
        }
        report.values["libraries"] = loaded_libraries();
        report.save();
    } else if (what == "--memory") {
        report.values["memory"] = measure_memory(module);
        report.save();
    } else if (what == "--products") {
        measure_products(module, report);
    } else {
        report.values["layers"] = measure_layers(module);
        report.save();
    }
    return 0;
}

}  // namespace

int tests::run_gpu_bench(const std::vector<std::string>& words) {
    const std::string what = words.size() == 2 ? words[0] : "";
    if (what != "--versions" && what != "--card" && what != "--memory" && what != "--products" && what != "--layers") {
        fmt::print(stderr, "usage: gpu_all bench --versions | --card | --memory | --products | --layers FILE\n");
        return 2;
    }
    return run(what, words[1]);
}

}  // namespace mgplan
