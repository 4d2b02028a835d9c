#include <sys/utsname.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <thread>

#include <fmt/core.h>

#include "model/device/memory_operations.hpp"
#include "model/ops/activation.hpp"
#include "model/ops/attention.hpp"
#include "model/ops/elementwise.hpp"
#include "model/ops/grouped_matmul.hpp"
#include "model/ops/matmul.hpp"
#include "model/ops/norm.hpp"
#include "plan/text/text.hpp"
#include "runtime/calibration/calibrate.hpp"
#include "runtime/calibration/repeat.hpp"

namespace mgplan::runtime {
namespace {

using model::MemoryCategory;
using model::Shape;
using model::Tensor;

constexpr std::int64_t kMiB = std::int64_t{1} << 20;
/// Operands change from call to call where they are smaller than this, so that no cache holds them: twice the largest cache
/// of today's GPUs (H100: 50 MB, B200: 126 MB).
constexpr std::int64_t kCache = 256 * kMiB;
constexpr std::int64_t kWidth = 4096;  ///< of rows in norms and activations

/// Returns `count` values in about [-1, 1), the same on every run.
std::vector<std::byte> different_values(std::size_t count, Dtype dtype) {
    const auto element = static_cast<std::size_t>(bytes_of(dtype));
    std::vector<std::byte> bytes(count * element);
    std::uint64_t state = 88172645463325252U;
    for (std::size_t at = 0; at < bytes.size(); at += element) {
        state = state * 6364136223846793005U + 1442695040888963407U;
        const float value = static_cast<float>(state >> 40U) / static_cast<float>(1 << 23) - 1;
        if (dtype == Dtype::fp64) {
            const double wide = value;
            std::memcpy(&bytes[at], &wide, sizeof(wide));
        } else if (dtype == Dtype::fp32) {
            std::memcpy(&bytes[at], &value, sizeof(value));
        } else {
            MGPLAN_ASSERT(dtype == Dtype::bf16, "ranks compute bf16, fp32 and fp64");
            std::uint32_t bits = 0;
            std::memcpy(&bits, &value, sizeof(bits));
            const auto word = static_cast<std::uint16_t>(bits >> 16U);
            std::memcpy(&bytes[at], &word, sizeof(word));
        }
    }
    return bytes;
}

/// Products of zeros run faster than those of numbers. A prime number of different values over and over, so that rows differ; they go to
/// the card once, and from there on it copies them itself: a large matrix from pageable memory would take longer than what is measured.
Tensor values(model::Device& device, const Shape& shape, Dtype dtype) {
    constexpr std::int64_t kDifferent = 1'048'573;
    Tensor tensor = device.empty(shape, dtype, MemoryCategory::parameters, "values to measure with");
    std::vector<std::byte> bytes = different_values(static_cast<std::size_t>(std::min(shape.elements(), kDifferent)), dtype);
    const auto fresh = static_cast<std::int64_t>(bytes.size());
    model::MemoryOperations* const card = device.memory_operations();
    if (tensor.bytes() > fresh && card != nullptr) {
        const Tensor once = device.empty({kDifferent}, dtype, MemoryCategory::workspace, "values once");
        device.write(once, bytes.data());
        auto* const begin = static_cast<std::byte*>(tensor.data());
        for (std::int64_t at = 0; at < tensor.bytes(); at += fresh) {
            card->copy(begin + at, static_cast<const std::byte*>(once.data()), std::min(fresh, tensor.bytes() - at));
        }
        card->finish();
        return tensor;
    }
    bytes.resize(static_cast<std::size_t>(tensor.bytes()));
    for (std::int64_t at = fresh; at < tensor.bytes(); at += fresh) {
        std::memcpy(&bytes[static_cast<std::size_t>(at)], bytes.data(), static_cast<std::size_t>(std::min(fresh, tensor.bytes() - at)));
    }
    device.write(tensor, bytes.data());
    return tensor;
}

/// Sums the FLOPs and bytes that ops report, and keeps the last op's name.
class Listener final : public model::OpListener {
public:
    explicit Listener(model::Device& device) : device_(device), before_(device.listener()) { device.set_listener(this); }
    ~Listener() override { device_.set_listener(before_); }
    Listener(const Listener&) = delete;
    Listener& operator=(const Listener&) = delete;
    void on_op(const model::OpRecord& record) override {
        flops += record.flops;
        bytes += record.bytes_read + record.bytes_written;
        name = record.name;
    }
    double flops = 0;
    std::int64_t bytes = 0;
    std::string name;

private:
    model::Device& device_;
    model::OpListener* before_;
};

bool interrupted(const CalibrateOptions& options) {
    return options.interrupt != nullptr && options.interrupt->load();
}

std::string time_text(double seconds) {
    return seconds < 1e-3 ? fmt::format("{:.1f} us", seconds * 1e6) : fmt::format("{:.3f} ms", seconds * 1e3);
}

std::string product_text(const model::ProductSizes& sizes) {
    return fmt::format("product {} x {} x {} {}{}", sizes.m, sizes.n, sizes.k, to_string(sizes.dtype), sizes.accumulate ? ", added" : "");
}

std::string grouped_text(const model::GroupedProductSizes& sizes) {
    return fmt::format("{} products {} x {} x {} {}{}", sizes.groups, sizes.m, sizes.n, sizes.k, to_string(sizes.dtype),
                       sizes.accumulate ? ", added" : "");
}

/// Returns the experts' grouped products, and each of them with a quarter of the tokens, to measure the cost of few tokens.
std::set<model::GroupedProductSizes> with_fewer_rows(const std::set<model::GroupedProductSizes>& traced) {
    std::set<model::GroupedProductSizes> all = traced;
    for (model::GroupedProductSizes each : traced) {
        std::int64_t& rows = each.accumulate ? each.k : each.m;
        rows /= 4;
        if (rows > 0) all.insert(each);
    }
    return all;
}

class Bench {
public:
    Bench(model::Device& device, const CalibrateOptions& options, ClusterCalibration& into)
        : device_(device), options_(options), into_(into) {}

    bool run() {
        plan();
        for (const auto& work : list_) {
            if (interrupted(options_)) return false;
            work();
        }
        return true;
    }

private:
    void plan() {
        // Small ones first: their rate gives an estimate of how long the large ones will take.
        std::vector<model::ProductSizes> products(options_.work.products.begin(), options_.work.products.end());
        const auto work_of = [](const model::ProductSizes& p) {
            return static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k);
        };
        std::stable_sort(products.begin(), products.end(), [&](const auto& a, const auto& b) { return work_of(a) < work_of(b); });
        list_.emplace_back([this] { launch(); });
        for (const auto dtype : options_.dtypes) {
            // From a single row on: small kernels show the launch cost, large ones the bandwidth.
            for (std::int64_t bytes = kMiB / 32; bytes <= options_.most_bytes; bytes *= 8) {
                for (const char* op : {"copy", "add", "norm", "activation"})
                    list_.emplace_back([this, dtype, bytes, op] { kernel(op, dtype, bytes); });
            }
        }
        for (std::int64_t bytes = kMiB / 4; bytes <= options_.most_bytes; bytes *= 8) {
            for (const char* way : {"host_to_device", "device_to_host", "device_to_device"})
                list_.emplace_back([this, bytes, way] { copy(way, bytes); });
        }
        for (const auto& each : products) list_.emplace_back([this, each] { product(each); });
        for (const auto& each : with_fewer_rows(options_.work.grouped_products))
            list_.emplace_back([this, each] { grouped_product(each); });
        for (const auto& each : options_.work.attention) list_.emplace_back([this, each] { attention(each); });
    }

    void measured(const std::string& text) {
        if (options_.on_measured) options_.on_measured(into_, {text, ++done_, list_.size()});
    }
    void known() { ++done_; }
    void left_out(const std::string& what, const std::string& why) {
        ++done_;
        if (options_.on_left_out) options_.on_left_out(fmt::format("{} left out: {}", what, why));
    }

    /// Returns true if `flops` and `bytes` are within patience and memory; reports the measurement as left out if not.
    bool feasible(const std::string& what, Dtype dtype, double flops, std::int64_t bytes) {
        if (options_.memory_bytes > 0 && bytes > options_.memory_bytes / 2) {
            left_out(what, fmt::format("it needs {}, more than half of the memory", human_bytes(bytes)));
            return false;
        }
        // Shorter calls are always measured, so that the list of a quick calibration does not depend on how busy the machine is.
        constexpr double kShort = 0.1;  // seconds
        const auto rate = best_rate_.find(dtype);
        if (rate != best_rate_.end() && flops / rate->second > std::max(kShort, options_.patience * options_.seconds)) {
            left_out(what, fmt::format("one would take about {:.1f} s; a larger --seconds measures it", flops / rate->second));
            return false;
        }
        return true;
    }
    void note_rate(Dtype dtype, double rate) { best_rate_[dtype] = std::max(best_rate_[dtype], rate); }

    void launch() {
        if (into_.launch.repetitions > 0) return known();
        // By the host's clock until the call returns: what it needs to issue a kernel; where work is done when it returns, the kernel too.
        using Clock = std::chrono::steady_clock;
        const Tensor x = values(device_, {1}, Dtype::fp32);
        std::vector<double> seconds;
        for (int round = 0; round < 33; ++round) {
            device_.synchronize();
            const auto begin = Clock::now();
            constexpr int kCalls = 100;
            for (int i = 0; i < kCalls; ++i) model::scale(x, 1);
            seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count() / kCalls);
        }
        seconds.erase(seconds.begin(), seconds.begin() + 3);
        device_.synchronize();
        into_.launch = timing_of(std::move(seconds));
        measured(fmt::format("launch of an op: {}", time_text(into_.launch.seconds)));
    }

    /// `bytes`: about what the op reads and writes; the result has the exact number.
    void kernel(const std::string& op, Dtype dtype, std::int64_t bytes) {
        const std::int64_t elements = std::max<std::int64_t>(kWidth, bytes / bytes_of(dtype) / 2 / kWidth * kWidth);
        const std::int64_t rows = elements / kWidth;
        std::function<void()> once;
        Tensor x, y, weight;
        const auto prepare = [&] {
            x = values(device_, {rows, kWidth}, dtype);
            if (op == "copy" || op == "add") {
                y = values(device_, {rows, kWidth}, dtype);
                once = [&] { op == "copy" ? model::copy(x, y) : model::add(x, y); };
            } else if (op == "norm") {
                weight = values(device_, {kWidth}, dtype);
                once = [&] {
                    model::NormStatistics statistics;
                    static_cast<void>(model::norm(x, weight, {}, Normalization::rms_norm, 1e-5, statistics));
                };
            } else {
                once = [&] { static_cast<void>(model::activation(x, Activation::silu, true)); };
            }
        };
        prepare();
        KernelTime time;
        {
            Listener listener(device_);
            once();
            time.op = fmt::format("{} {}", listener.name, to_string(dtype));
            time.bytes = listener.bytes;
        }
        for (const auto& each : into_.kernels) {
            if (each.op == time.op && each.bytes == time.bytes) return known();
        }
        time.time = repeat_without_host(device_, options_.seconds, [&](std::int64_t) { once(); });
        into_.kernels.push_back(time);
        measured(fmt::format("{}, {}: {}, {:.1f} GB/s", time.op, human_bytes(time.bytes), time_text(time.time.seconds),
                             1e-9 * static_cast<double>(time.bytes) / time.time.seconds));
    }

    void copy(const std::string& way, std::int64_t bytes) {
        for (const auto& each : into_.copies) {
            if (each.way == way && each.bytes == bytes) return known();
        }
        const Tensor x = values(device_, {bytes / 4}, Dtype::fp32);
        CopyTime time{way, bytes, {}};
        if (way == "device_to_device") {
            const Tensor y = values(device_, {bytes / 4}, Dtype::fp32);
            time.time = repeat(device_, options_.seconds, [&](std::int64_t) { model::copy(x, y); });
        } else {
            std::vector<std::byte> host(static_cast<std::size_t>(bytes));
            time.time = repeat(device_, options_.seconds, [&](std::int64_t) {
                way == "host_to_device" ? device_.write(x, host.data()) : device_.read(x, host.data());
            });
        }
        into_.copies.push_back(time);
        measured(fmt::format("{}, {}: {}, {:.1f} GB/s", way, human_bytes(bytes), time_text(time.time.seconds),
                             1e-9 * static_cast<double>(bytes) / time.time.seconds));
    }

    void product(const model::ProductSizes& p) {
        for (const auto& each : into_.products) {
            if (each.m == p.m && each.n == p.n && each.k == p.k && each.transpose_a == p.transpose_a && each.transpose_b == p.transpose_b &&
                each.accumulate == p.accumulate && each.dtype == p.dtype) {
                note_rate(p.dtype,
                          2.0 * static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k) / each.time.seconds);
                return known();
            }
        }
        const double flops = 2.0 * static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k);
        // In double precision, because the product of the sizes may not fit into 64 bits.
        const double once = static_cast<double>(bytes_of(p.dtype)) * (static_cast<double>(p.m) * static_cast<double>(p.k) +
                                                                      static_cast<double>(p.k) * static_cast<double>(p.n)) +
                            4.0 * static_cast<double>(p.m) * static_cast<double>(p.n);
        if (once > 1e15) return left_out(product_text(p), "its matrices fit into no memory");
        const auto bytes = static_cast<std::int64_t>(once);
        const std::size_t sets = bytes < kCache && device_.kind() == model::DeviceKind::cuda ? 3 : 1;
        if (!feasible(product_text(p), p.dtype, flops, bytes * static_cast<std::int64_t>(sets))) return;
        std::vector<Tensor> a, b, out;
        for (std::size_t i = 0; i < sets; ++i) {
            a.push_back(values(device_, p.transpose_a ? Shape{p.k, p.m} : Shape{p.m, p.k}, p.dtype));
            b.push_back(values(device_, p.transpose_b ? Shape{p.n, p.k} : Shape{p.k, p.n}, p.dtype));
            if (p.accumulate) {
                const Dtype sum = p.dtype == Dtype::fp64 ? Dtype::fp64 : Dtype::fp32;
                out.push_back(device_.zeros({p.m, p.n}, sum, MemoryCategory::gradients, "sum to measure with"));
            }
        }
        // As linear layers multiply. A GPU chooses the algorithm of a sum where a step's first microbatch writes it.
        constexpr auto kTimed = model::ProductAlgorithm::timed;
        if (p.accumulate && device_.kind() == model::DeviceKind::cuda)
            model::matmul_write(a[0], b[0], {p.transpose_a, p.transpose_b}, out[0], kTimed);
        const Timing time = repeat(device_, options_.seconds, [&](std::int64_t call) {
            const std::size_t i = static_cast<std::size_t>(call) % sets;
            if (p.accumulate) {
                model::matmul_accumulate(a[i], b[i], {p.transpose_a, p.transpose_b}, out[i], kTimed);
            } else {
                static_cast<void>(model::matmul(a[i], b[i], {p.transpose_a, p.transpose_b}, "product to measure", kTimed));
            }
        });
        into_.products.push_back({p.m, p.n, p.k, p.transpose_a, p.transpose_b, p.accumulate, p.dtype, time});
        note_rate(p.dtype, flops / time.seconds);
        measured(fmt::format("{}: {}, {:.4g} GFLOP/s", product_text(p), time_text(time.seconds), 1e-9 * flops / time.seconds));
    }

    void grouped_product(const model::GroupedProductSizes& p) {
        for (const auto& each : into_.grouped_products) {
            if (each.groups == p.groups && each.m == p.m && each.n == p.n && each.k == p.k && each.transpose_b == p.transpose_b &&
                each.accumulate == p.accumulate && each.dtype == p.dtype)
                return known();
        }
        const auto groups = static_cast<double>(p.groups), m = static_cast<double>(p.m), n = static_cast<double>(p.n),
                   k = static_cast<double>(p.k);
        const double flops = 2 * groups * m * n * k;
        const double once = groups * (static_cast<double>(bytes_of(p.dtype)) * (m * k + k * n) + 4 * m * n);
        if (once > 1e15) return left_out(grouped_text(p), "its matrices fit into no memory");
        const auto bytes = static_cast<std::int64_t>(once);
        const std::size_t sets = bytes < kCache && device_.kind() == model::DeviceKind::cuda ? 3 : 1;
        if (!feasible(grouped_text(p), p.dtype, flops, bytes * static_cast<std::int64_t>(sets))) return;
        const std::int64_t mean = p.accumulate ? p.k : p.m;
        std::vector<Tensor> a, b;              // of all groups; b: with accumulation, the second operand, row by row as in a
        std::vector<std::vector<Tensor>> own;  // each group's matrix, or its sum
        for (std::size_t i = 0; i < sets; ++i) {
            a.push_back(values(device_, {p.groups * mean, p.accumulate ? p.m : p.k}, p.dtype));
            if (p.accumulate) b.push_back(values(device_, {p.groups * mean, p.n}, p.dtype));
            auto& matrices = own.emplace_back();
            for (std::int64_t group = 0; group < p.groups; ++group) {
                const Dtype sum = p.dtype == Dtype::fp64 ? Dtype::fp64 : Dtype::fp32;
                matrices.push_back(p.accumulate ? device_.zeros({p.m, p.n}, sum, MemoryCategory::gradients, "sum to measure with")
                                                : values(device_, p.transpose_b ? Shape{p.n, p.k} : Shape{p.k, p.n}, p.dtype));
            }
        }
        const Timing time = repeat(device_, options_.seconds, [&](std::int64_t call) {
            const std::size_t i = static_cast<std::size_t>(call) % sets;
            const std::vector<std::int64_t> rows = routed_rows(p.groups, mean, call);
            if (p.accumulate) {
                model::grouped_matmul_accumulate(a[i], b[i], rows, own[i]);
            } else {
                static_cast<void>(model::grouped_matmul(a[i], own[i], rows, p.transpose_b, "grouped product to measure"));
            }
        });
        into_.grouped_products.push_back({p.groups, p.m, p.n, p.k, p.transpose_b, p.accumulate, p.dtype, time});
        measured(fmt::format("{}: {}, {:.4g} GFLOP/s", grouped_text(p), time_text(time.seconds), 1e-9 * flops / time.seconds));
    }

    void attention(const model::AttentionExtent& e) {
        const std::string text = fmt::format("attention {} x {}, {} heads over {} of {}, {}", e.batch, e.sequence, e.heads, e.kv_heads,
                                             e.qk_dim, to_string(e.dtype));
        const auto find = [&](bool backward) {
            return std::find_if(into_.attention.begin(), into_.attention.end(), [&](const AttentionTime& each) {
                return each.sequence == e.sequence && each.batch == e.batch && each.heads == e.heads && each.kv_heads == e.kv_heads &&
                       each.qk_dim == e.qk_dim && each.v_dim == e.v_dim && each.dtype == e.dtype && each.backward == backward;
            });
        };
        const bool has_forward = find(false) != into_.attention.end(), has_backward = find(true) != into_.attention.end();
        if (has_forward && has_backward) return known();
        const double pairs = 0.5 * static_cast<double>(e.sequence) * static_cast<double>(e.sequence + 1) * static_cast<double>(e.batch) *
                             static_cast<double>(e.heads);
        const double elements = static_cast<double>(e.sequence) * static_cast<double>(e.batch) * static_cast<double>(e.heads) *
                                static_cast<double>(e.qk_dim + e.v_dim);
        if (elements > 1e14) return left_out(text, "its tensors fit into no memory");
        // Queries, keys and values at most, their gradients, the output and its gradient.
        const auto bytes = static_cast<std::int64_t>(4 * elements) * bytes_of(e.dtype);
        // Unfused attention runs at a part of the rate of products.
        if (!feasible(text, e.dtype, 4 * pairs * 2.0 * static_cast<double>(3 * e.qk_dim + 2 * e.v_dim), bytes)) return;
        const std::int64_t rows = e.sequence * e.batch;
        const Tensor q = values(device_, {rows, e.heads, e.qk_dim}, e.dtype), k = values(device_, {rows, e.kv_heads, e.qk_dim}, e.dtype),
                     v = values(device_, {rows, e.kv_heads, e.v_dim}, e.dtype);
        const Tensor d_output = values(device_, {rows, e.heads, e.v_dim}, e.dtype);
        const model::Positions positions = model::zigzag_positions(e.sequence, e.batch, 1, 0);
        const double scale = 1 / std::sqrt(static_cast<double>(e.qk_dim));
        AttentionTime time{e.sequence, e.batch, e.heads, e.kv_heads, e.qk_dim, e.v_dim, false, e.dtype, 0, {}};
        model::AttentionResult result;
        {
            Listener listener(device_);
            result = model::attention(q, k, v, positions, positions, scale);
            time.flops = listener.flops;
        }
        std::string said = text;
        if (!has_forward) {
            time.time = repeat(device_, options_.seconds,
                               [&](std::int64_t) { static_cast<void>(model::attention(q, k, v, positions, positions, scale)); });
            into_.attention.push_back(time);
            said += fmt::format(": {} forward", time_text(time.time.seconds));
        }
        if (!has_backward) {
            time.backward = true;
            {
                Listener listener(device_);
                static_cast<void>(model::attention_backward(d_output, q, k, v, result, positions, positions, scale));
                time.flops = listener.flops;
            }
            time.time = repeat(device_, options_.seconds, [&](std::int64_t) {
                static_cast<void>(model::attention_backward(d_output, q, k, v, result, positions, positions, scale));
            });
            into_.attention.push_back(time);
            said += fmt::format("{} {} backward", has_forward ? ":" : ",", time_text(time.time.seconds));
        }
        measured(said);
    }

    model::Device& device_;
    const CalibrateOptions& options_;
    ClusterCalibration& into_;
    std::vector<std::function<void()>> list_;
    std::size_t done_ = 0;
    std::map<Dtype, double> best_rate_;  ///< FLOP/s
};

}  // namespace

std::string hardware_name(const RankDevices& devices) {
    if (devices.traits().kind == model::DeviceKind::cuda) return devices.text();
    std::string name;
    std::ifstream file("/proc/cpuinfo");
    for (std::string line; name.empty() && std::getline(file, line);) {
        if (!line.starts_with("model name")) continue;
        const auto colon = line.find(':');
        if (colon != std::string::npos && colon + 2 < line.size()) name = line.substr(colon + 2);
    }
    if (name.empty()) {
        // Only x86 names a model there.
        utsname system{};
        name = ::uname(&system) == 0 ? std::string(system.machine) + " processor" : "a processor";
    }
    const unsigned processors = std::max(1U, std::thread::hardware_concurrency());
    return fmt::format("{} ({} processor{})", name, processors, processors == 1 ? "" : "s");
}

bool measure_device(model::Device& device, const CalibrateOptions& options, ClusterCalibration& into) {
    return Bench(device, options, into).run();
}

}  // namespace mgplan::runtime
