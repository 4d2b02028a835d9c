#pragma once
// Limits of a cluster's figures: wide enough for any machine of the coming years, narrow enough that products of a few of them stay finite
// and exact. Used by validate(), by the JSON reader and by --cluster NAME,key=value.

#include <cstdint>

namespace mgplan::cluster_limits {

struct Count {
    std::int64_t low;
    std::int64_t high;
};
struct Real {
    double low;
    double high;
};

inline constexpr Count kMemoryBytes{std::int64_t{1} << 20, std::int64_t{1} << 50};
inline constexpr Count kHostMemoryBytes{0, std::int64_t{1} << 50};
inline constexpr Count kGpusPerNode{1, 1024};
inline constexpr Count kNvlinkDomain{1, 65536};
inline constexpr Count kNicsPerNode{1, 1024};
inline constexpr Count kComputeCapability{10, 999};
inline constexpr Count kComputeUnits{0, 100'000};
inline constexpr Real kPeakFlops{1e6, 1e20};
inline constexpr Real kBandwidth{1e3, 1e17};  ///< bytes/s
inline constexpr Real kWatts{0, 1e6};
inline constexpr Real kLatency{1e-12, 1.0};  ///< seconds

}  // namespace mgplan::cluster_limits
