#pragma once
// A GPU on the host: the kernel bodies of runtime/cuda and everything from a kernel's arguments to its launches, compiled
// for the CPU and run at once. Only products, copies and the fused attention of libraries are stood in for.

#include <chrono>
#include <cstring>
#include <utility>
#include <vector>

#include "model/device/device.hpp"
#include "model/device/late_values.hpp"
#include "model/device/memory_operations.hpp"
#include "runtime/cuda/ops/reduce.hpp"
#include "runtime/cuda/ops/table.hpp"
#include "runtime/fp8.hpp"
#include "runtime/fp8_blocks.hpp"
#include "runtime/memory/pool_allocator.hpp"
#include "tests/runtime/cuda/moved_bytes.hpp"

namespace mgplan::runtime::cuda {

/// Fused attention as a library does it, by the definition, in its own order of the statistics.
class FusedEmulation final : public FusedLibrary {
public:
    bool refuses = false;
    int asked = 0;
    std::int64_t started = 0;  ///< kernels, as OpRecord::launches counts a library's

    bool accepts(const FusedShape& /*shape*/, const FusedMemory& /*memory*/) override {
        ++asked;
        return !refuses;
    }
    void run(const FusedShape& s, const FusedMemory& x, double scale) override {
        started += s.backward ? 3 : 1;
        std::memset(x.workspace, 0xff, static_cast<std::size_t>(x.workspace_bytes));
        const auto at = [&](std::int64_t place, std::int64_t sequence, std::int64_t head, std::int64_t heads, std::int64_t width) {
            return ((place * s.batch + sequence) * heads + head) * width;
        };
        // Of queries, keys, values and their gradients.
        const auto in = [&](std::int64_t place, std::int64_t sequence, std::int64_t head, std::int64_t heads, std::int64_t width) {
            if (!s.packed) return at(place, sequence, head, heads, width);
            const std::int64_t members = heads / s.kv_heads, group = (s.heads / s.kv_heads + 2) * width;
            return ((place * s.batch + sequence) * s.kv_heads + head / members) * group + head % members * width;
        };
        const auto of = [](const void* array, std::int64_t i) { return float(static_cast<const Bf16*>(array)[i]); };
        std::vector<float> dk(static_cast<std::size_t>(s.key_places * s.batch * s.kv_heads * s.qk_dim)),
            dv(static_cast<std::size_t>(s.key_places * s.batch * s.kv_heads * s.v_dim));
        auto* const statistics = static_cast<float*>(x.log_sum_exp);
        auto* const sums = static_cast<float*>(x.query_sums);
        for (std::int64_t b = 0; b < s.batch; ++b) {
            for (std::int64_t h = 0; h < s.heads; ++h) {
                const std::int64_t kv = h / (s.heads / s.kv_heads);
                for (std::int64_t i = 0; i < s.places; ++i) {
                    std::vector<float> p;  // before they are divided by their sum
                    float sum = 0;
                    for (std::int64_t j = 0; j < (s.causal ? i + 1 : s.key_places); ++j) {
                        float score = 0;
                        for (std::int64_t d = 0; d < s.qk_dim; ++d) {
                            score += of(x.q, in(i, b, h, s.heads, s.qk_dim) + d) * of(x.k, in(j, b, kv, s.kv_heads, s.qk_dim) + d);
                        }
                        p.push_back(std::exp(score * static_cast<float>(scale)));
                        sum += p.back();
                    }
                    float& kept = statistics[(b * s.heads + h) * s.places + i];
                    if (s.backward) sum = std::exp(kept);  // perhaps of more keys than these
                    kept = std::log(sum);
                    float share = 0;
                    for (std::int64_t d = 0; d < s.v_dim; ++d) {
                        const std::int64_t place = at(i, b, h, s.heads, s.v_dim) + d;
                        if (s.backward) {
                            share += of(x.output, place) * of(x.d_output, place);
                            continue;
                        }
                        float out = 0;
                        for (std::size_t j = 0; j < p.size(); ++j)
                            out += p[j] / sum * of(x.v, in(static_cast<std::int64_t>(j), b, kv, s.kv_heads, s.v_dim) + d);
                        static_cast<Bf16*>(x.output)[place] = Bf16(out);
                    }
                    if (!s.backward) continue;
                    for (std::size_t j = 0; j < p.size(); ++j) {
                        const float weight = p[j] / sum;
                        float slope = 0;
                        for (std::int64_t d = 0; d < s.v_dim; ++d) {
                            const float gradient = of(x.d_output, at(i, b, h, s.heads, s.v_dim) + d);
                            const auto key_place = static_cast<std::int64_t>(j);
                            slope += gradient * of(x.v, in(key_place, b, kv, s.kv_heads, s.v_dim) + d);
                            dv[static_cast<std::size_t>(at(key_place, b, kv, s.kv_heads, s.v_dim) + d)] += weight * gradient;
                        }
                        const float ds = weight * (slope - share) * static_cast<float>(scale);
                        for (std::int64_t d = 0; d < s.qk_dim; ++d) {
                            const auto key_place = static_cast<std::int64_t>(j);
                            sums[at(i, b, h, s.heads, s.qk_dim) + d] += ds * of(x.k, in(key_place, b, kv, s.kv_heads, s.qk_dim) + d);
                            dk[static_cast<std::size_t>(at(key_place, b, kv, s.kv_heads, s.qk_dim) + d)] +=
                                ds * of(x.q, in(i, b, h, s.heads, s.qk_dim) + d);
                        }
                    }
                }
            }
        }
        if (!s.backward) return;
        const auto give = [&](const float* from, std::int64_t places, std::int64_t heads, std::int64_t width, void* to) {
            for (std::int64_t i = 0; i < places * s.batch * heads * width; ++i) {
                const std::int64_t row = i / width, place = row / heads / s.batch;
                static_cast<Bf16*>(to)[in(place, row / heads % s.batch, row % heads, heads, width) + i % width] = Bf16(from[i]);
            }
        };
        give(sums, s.places, s.heads, s.qk_dim, x.dq);
        give(dk.data(), s.key_places, s.kv_heads, s.qk_dim, x.dk);
        give(dv.data(), s.key_places, s.kv_heads, s.v_dim, x.dv);
    }
};

/// Bodies run from the last index to the first, so that one that relies on order shows.
class HostLauncher {
public:
    static HostLauncher& of(model::Device& device);

    template <class Body>
    void each(std::int64_t count, const Body& body) {
        started += count > 0 ? 1 : 0;
        moved += moved_bytes(body, count);
        for (std::int64_t i = count; i-- > 0;) body(i);
    }
    template <int N, class Body>
    void packs(std::int64_t count, const Body& body) {
        ++packed;
        started += count > 0 ? 1 : 0;
        moved += moved_bytes(body, count);
        const std::int64_t whole = count / N;
        for (std::int64_t i = count; i-- > whole * N;) body.template finish<1>(i, body.template load<1>(i));
        // In pairs that are loaded before either is written, as on a GPU.
        for (std::int64_t pack = whole / 2; pack < whole - whole / 2; ++pack)
            body.template finish<N>(pack * N, body.template load<N>(pack * N));
        for (std::int64_t pack = 0; pack < whole / 2; ++pack) {
            const std::int64_t other = whole - 1 - pack;
            const auto a = body.template load<N>(pack * N);
            const auto b = body.template load<N>(other * N);
            body.template finish<N>(pack * N, a);
            body.template finish<N>(other * N, b);
        }
    }
    std::int64_t started = 0;                   ///< kernels, copies and zeros, and those of libraries as OpRecord::launches counts them
    int packed = 0;                             ///< kernels that ran on packs
    int teamed = 0;                             ///< and on teams
    std::int64_t timed = 0, not_timed = 0;      ///< products, by whether a card may choose their algorithms by timing
    std::int64_t with_bias = 0, with_sums = 0;  ///< products that add a bias, and that sum up rows
    double timed_error = 0;                     ///< relative, of such products but those in fp8
    double multiplied = 0;                      ///< FLOPs of products
    double moved = 0;                           ///< bytes of products, and of kernels as far as moved_bytes() knows them
    template <class Body>
    void teams(std::int64_t count, int lanes, const Body& body) {
        ++teamed;
        started += count > 0 ? 1 : 0;
        moved += moved_bytes(body, count);
        EXPECT_TRUE(lanes >= 32 && lanes <= 1024 && (lanes & (lanes - 1)) == 0) << "lanes are a power of two";
        const HostTeam team(lanes);
        for (std::int64_t i = count; i-- > 0;) body(team, i);
    }
    void copy(void* to, const void* from, std::int64_t bytes) {
        ++started;
        if (bytes > 0) std::memmove(to, from, static_cast<std::size_t>(bytes));
    }
    void zero(void* memory, std::int64_t bytes) {
        ++started;
        std::memset(memory, 0, static_cast<std::size_t>(bytes));
    }
    [[nodiscard]] FusedLibrary* library() { return &library_; }
    [[nodiscard]] FusedEmulation& emulation() { return library_; }
    [[nodiscard]] std::int64_t launches() const { return started + library_.started; }

    void gemm(const Gemm& x) {
        ++started;
        ++(x.algorithm == model::ProductAlgorithm::timed ? timed : not_timed);
        multiplied += 2 * static_cast<double>(x.m * x.n) * static_cast<double>(x.k * x.batch);
        moved += static_cast<double>(x.batch * (x.m + x.n) * x.k * bytes_of(x.input)) +
                 static_cast<double>(x.batch * x.m * x.n * bytes_of(x.output) * (x.beta != 0 ? 2 : 1));
        moved += static_cast<double>(((x.bias != nullptr ? x.n : 0) + (x.row_sums != nullptr ? x.m : 0)) * bytes_of(x.output));
        with_bias += x.bias != nullptr ? 1 : 0;
        with_sums += x.row_sums != nullptr ? 1 : 0;
        EXPECT_EQ((address(x.bias) | address(x.row_sums)) % 16, 0U);
        EXPECT_NE(x.workspace, nullptr);
        // A library may write all of it; both ends are enough to show who else does, and quick.
        const auto end = static_cast<std::size_t>(std::min<std::int64_t>(x.workspace_bytes, 4096));
        std::memset(x.workspace, 0xff, end);
        std::memset(static_cast<std::byte*>(x.workspace) + x.workspace_bytes - end, 0xff, end);
        if (bytes_of(x.input) == 1) return fp8_gemm(x);
        const double alpha = x.alpha * (x.algorithm == model::ProductAlgorithm::timed ? 1 + timed_error : 1);
        with_types(x.input, x.output, [&]<class In, class Out>() {
            using Sum = Compute<In>;
            for (std::int64_t i = 0; i < x.batch; ++i) {
                const In* const a = static_cast<const In*>(x.a) + i * x.a_stride;
                const In* const b = static_cast<const In*>(x.b) + i * x.b_stride;
                Out* const c = static_cast<Out*>(x.c) + i * x.c_stride;
                for (std::int64_t row = 0; row < x.m; ++row) {
                    for (std::int64_t column = 0; column < x.n; ++column) {
                        Sum sum = 0;
                        for (std::int64_t k = 0; k < x.k; ++k) {
                            sum += Sum(a[x.transpose_a ? k * x.a_pitch + row : row * x.a_pitch + k]) *
                                   Sum(b[x.transpose_b ? column * x.b_pitch + k : k * x.b_pitch + column]);
                        }
                        Out& out = c[row * x.c_pitch + column];
                        const Sum before = x.beta == 0 ? Sum{0} : static_cast<Sum>(x.beta) * Sum(out);
                        const Sum added = x.bias == nullptr ? Sum{0} : Sum(static_cast<const Out*>(x.bias)[column]);
                        out = Out(static_cast<Sum>(alpha) * sum + before + added);
                    }
                }
                if (x.row_sums == nullptr) continue;
                for (std::int64_t row = 0; row < x.m; ++row) {
                    Sum sum = 0;
                    for (std::int64_t k = 0; k < x.k; ++k) sum += Sum(a[x.transpose_a ? k * x.a_pitch + row : row * x.a_pitch + k]);
                    static_cast<Out*>(x.row_sums)[row] = Out(sum);
                }
            }
        });
    }

    /// What cuBLASLt offers of fp8 before Blackwell: both operands along k, with rows that 16 bytes divide.
    void fp8_gemm(const Gemm& x) {
        EXPECT_TRUE(!x.transpose_a && x.transpose_b && x.batch == 1 && x.a_pitch == x.k && x.b_pitch == x.k);
        EXPECT_TRUE(x.input == Dtype::fp8 || x.other_input == Dtype::fp8) << "one operand is e4m3";
        EXPECT_EQ(x.k % 16, 0);
        ASSERT_TRUE(x.a_scale != nullptr && x.b_scale != nullptr);
        if (x.a_scaling != model::Fp8Scaling::tensor) return block_gemm(x);
        const auto values = [](Dtype dtype, const void* codes, std::int64_t count) {
            std::vector<float> list;
            for (std::int64_t i = 0; i < count; ++i)
                list.push_back(dtype == Dtype::fp8 ? float(static_cast<const E4m3*>(codes)[i]) : float(static_cast<const E5m2*>(codes)[i]));
            return list;
        };
        const std::vector<float> a = values(x.input, x.a, x.m * x.k), b = values(x.other_input, x.b, x.n * x.k);
        with_type(x.output, [&]<class Out>() {
            Out* const c = static_cast<Out*>(x.c);
            for (std::int64_t row = 0; row < x.m; ++row) {
                for (std::int64_t column = 0; column < x.n; ++column) {
                    float sum = 0;
                    for (std::int64_t k = 0; k < x.k; ++k)
                        sum += a[static_cast<std::size_t>(row * x.k + k)] * b[static_cast<std::size_t>(column * x.k + k)];
                    using Wide = Compute<Out>;
                    Out& out = c[row * x.c_pitch + column];
                    const Wide before = x.beta == 0 ? Wide{0} : static_cast<Wide>(out);
                    out = Out(static_cast<Wide>(sum * (*static_cast<const float*>(x.a_scale) * *static_cast<const float*>(x.b_scale))) +
                              before);
                }
            }
        });
    }

    /// The same with a scale for each block, as Hopper has it (squares of one operand at the most) and Blackwell (vectors of 32 in both).
    void block_gemm(const Gemm& x) {
        using model::Fp8Scaling;
        EXPECT_TRUE(x.input == Dtype::fp8 && x.other_input == Dtype::fp8) << "blocks are e4m3";
        EXPECT_FALSE(x.a_scaling == Fp8Scaling::squares_of_128 && x.b_scaling == Fp8Scaling::squares_of_128);
        EXPECT_EQ(x.m % 8, 0) << "a matrix of vectors has rows that 8 divides";
        EXPECT_EQ(x.n % 8, 0);
        EXPECT_EQ(address(x.a_scale) % 16 + address(x.b_scale) % 16, 0U) << "scales lie at multiples of 16 bytes";
        const auto value = [&](const void* codes, const void* scales, Fp8Scaling scaling, std::int64_t outer, std::int64_t row,
                               std::int64_t k) {
            const model::Fp8ScaleLayout layout(scaling, outer, x.k);
            const std::int64_t at = layout.at(row, k / fp8_block(scaling));
            const float scale = scaling == Fp8Scaling::vectors_of_32
                                    ? ScaleInE8m0::value(static_cast<const ScaleInE8m0::Stored*>(scales)[at])
                                    : static_cast<const float*>(scales)[at];
            return float(static_cast<const E4m3*>(codes)[row * x.k + k]) * scale;
        };
        with_type(x.output, [&]<class Out>() {
            Out* const c = static_cast<Out*>(x.c);
            for (std::int64_t row = 0; row < x.m; ++row) {
                for (std::int64_t column = 0; column < x.n; ++column) {
                    float sum = 0;
                    for (std::int64_t k = 0; k < x.k; ++k)
                        sum += value(x.a, x.a_scale, x.a_scaling, x.m, row, k) * value(x.b, x.b_scale, x.b_scaling, x.n, column, k);
                    using Wide = Compute<Out>;
                    Out& out = c[row * x.c_pitch + column];
                    out = Out(static_cast<Wide>(sum) + (x.beta == 0 ? Wide{0} : static_cast<Wide>(out)));
                }
            }
        });
    }

private:
    FusedEmulation library_;
};

class EmulatedDevice final : public model::Device, private model::MemoryOperations {
public:
    explicit EmulatedDevice(const model::KernelTraits& traits)
        : Device(model::DeviceKind::cuda, traits, std::make_unique<PoolAllocator>(), &model::with_every_kernel(table())),
          pool_(static_cast<PoolAllocator&>(Device::allocator())) {}

    [[nodiscard]] const model::MemoryUse& memory() const { return pool_.use(); }
    void restart_high_water() { pool_.restart_high_water(); }
    [[nodiscard]] const PoolAllocator& pool() const { return pool_; }
    [[nodiscard]] HostLauncher& launcher() { return launcher_; }
    /// How often the host waited for values, and gave some: neither can be in a CUDA graph.
    [[nodiscard]] int reads() const { return reads_; }
    [[nodiscard]] int writes() const { return writes_; }
    /// How often the host waited until the card had nothing left to do: for values that it read, for those that it had sent last of all,
    /// and for the card itself.
    [[nodiscard]] int waits() const { return reads_ + synchronized_ + late_waits_; }
    void synchronize() override { ++synchronized_; }
    [[nodiscard]] std::unique_ptr<model::LateValues> make_late_values() override { return std::make_unique<Late>(*this); }
    /// As events of a card's stream: the host waits for nothing that was not issued.
    [[nodiscard]] std::unique_ptr<model::Stopwatch> make_stopwatch() override { return std::make_unique<Watch>(); }
    [[nodiscard]] model::MemoryOperations* memory_operations() override { return this; }

private:
    /// What a card copies in its turn: the values are those of the moment in which they are sent.
    class Late final : public model::LateValues {
    public:
        explicit Late(EmulatedDevice& device) : device_(device) {}
        void send(std::span<const model::Tensor> tensors) override {
            EXPECT_TRUE(values_.empty()) << "what was sent is received first";
            for (const model::Tensor& tensor : tensors) {
                EXPECT_EQ(tensor.dtype(), Dtype::fp64);
                if (tensor.elements() > 0) values_.insert(values_.end(), tensor.as<double>(), tensor.as<double>() + tensor.elements());
            }
            behind_ = device_.launcher().launches();
        }
        std::vector<double> receive() override {
            if (device_.launcher().launches() == behind_) ++device_.late_waits_;
            return std::exchange(values_, {});
        }

    private:
        EmulatedDevice& device_;
        std::vector<double> values_;
        std::int64_t behind_ = 0;
    };
    class Watch final : public model::Stopwatch {
    public:
        void start() override { started_ = Clock::now(); }
        void stop() override { stopped_ = Clock::now(); }
        double seconds() override { return std::chrono::duration<double>(stopped_ - started_).count(); }

    private:
        using Clock = std::chrono::steady_clock;
        Clock::time_point started_, stopped_;
    };

    static const model::KernelTable& table() {
        static const model::KernelTable filled = [] {
            model::KernelTable all{};
            fill_dense<HostLauncher>(all);
            fill_flat<HostLauncher>(all);
            fill_recurrent<HostLauncher>(all);
            fill_router<HostLauncher>(all);
            return all;
        }();
        return filled;
    }
    void do_write(void* to, const void* from, std::int64_t bytes) override {
        ++writes_;
        std::memcpy(to, from, static_cast<std::size_t>(bytes));
    }
    void do_read(void* to, const void* from, std::int64_t bytes) override {
        ++reads_;
        std::memcpy(to, from, static_cast<std::size_t>(bytes));
    }
    void do_zero(void* memory, std::int64_t bytes) override { launcher_.zero(memory, bytes); }

    void copy(std::byte* to, const std::byte* from, std::int64_t bytes) override { launcher_.copy(to, from, bytes); }
    void reduce(Dtype dtype, model::Reduction reduction, std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs,
                std::int64_t begin, std::int64_t end) override {
        reduce_ranks(launcher_, dtype, reduction, inputs, outputs, begin, end);
    }
    void finish() override {}

    PoolAllocator& pool_;
    HostLauncher launcher_;
    int reads_ = 0, writes_ = 0, synchronized_ = 0, late_waits_ = 0;
};

inline HostLauncher& HostLauncher::of(model::Device& device) {
    return static_cast<EmulatedDevice&>(device).launcher();
}

/// What the tests emulate: a Hopper card with or without cuDNN.
inline model::KernelTraits emulated_traits(bool fused) {
    return {model::DeviceKind::cuda, 90, fused};
}

}  // namespace mgplan::runtime::cuda
