# MGPLAN_PORTABLE: what is built can be carried to another machine. The target `portable` builds the command, the program of
# tests/gpu/run and the CUDA module, and puts the shared libraries they need beside them, except for the C and C++
# runtimes (that machine's must not be older) and CUDA's (tests/gpu/run finds them). `portable_gpu` copies what
# tests/gpu/run needs, and no more, to gpu/bin and gpu/lib of the build folder; tests/gpu/pack builds and packs it.
option(MGPLAN_PORTABLE "Look for libraries beside the programs" OFF)
if(MGPLAN_PORTABLE)
  set(CMAKE_BUILD_RPATH "$ORIGIN;$ORIGIN/../lib")
  add_link_options(-s)
endif()

# Called behind all else: the GPU's program needs GoogleTest alone, so it is there without the other tests and what they need.
function(mgplan_add_portable_target)
  if(NOT MGPLAN_PORTABLE)
    return()
  endif()
  if(NOT MGPLAN_BUILD_TESTS)
    find_package(GTest QUIET)
    if(GTest_FOUND)
      add_subdirectory(tests/gpu)
    endif()
  endif()
  set(programs "")
  foreach(program IN ITEMS mgplan gpu_all)
    if(TARGET ${program})
      list(APPEND programs ${program})
    endif()
  endforeach()
  set(files "")
  foreach(program IN LISTS programs)
    list(APPEND files $<TARGET_FILE:${program}>)
  endforeach()
  set(modules "")
  if(TARGET mgplan_cuda)
    set(modules $<TARGET_FILE:mgplan_cuda>)
    list(APPEND programs mgplan_cuda)
  endif()
  add_custom_target(portable
    COMMAND ${CMAKE_COMMAND} "-DPROGRAMS=${files}" "-DMODULES=${modules}" -DFOLDER=${PROJECT_BINARY_DIR}/lib
      -P ${PROJECT_SOURCE_DIR}/cmake/bundle_libraries.cmake
    DEPENDS ${programs}
    VERBATIM)
  # A target that cannot be built says why; one that is missing would only be "unknown" to ninja.
  set(lacking "")
  if(NOT TARGET mgplan_cuda)
    list(APPEND lacking "CUDA (${MGPLAN_SUMMARY_CUDA})")
  endif()
  if(NOT TARGET mgplan_runtime)
    list(APPEND lacking "OpenBLAS (${MGPLAN_SUMMARY_OPENBLAS})")
  elseif(NOT TARGET gpu_all)
    list(APPEND lacking "GoogleTest (on Debian: apt-get install libgtest-dev libgmock-dev)")
  endif()
  if(lacking)
    list(JOIN lacking ", " lacking)
    add_custom_target(portable_gpu COMMAND ${CMAKE_COMMAND} -E echo "portable_gpu cannot be built without ${lacking}"
      COMMAND ${CMAKE_COMMAND} -E false VERBATIM)
    return()
  endif()
  add_custom_target(portable_gpu
    COMMAND ${CMAKE_COMMAND} -DPROGRAMS=$<TARGET_FILE:gpu_all> -DMODULES=$<TARGET_FILE:mgplan_cuda>
      -DFOLDER=${PROJECT_BINARY_DIR}/gpu/lib -DPROGRAM_FOLDER=${PROJECT_BINARY_DIR}/gpu/bin
      -P ${PROJECT_SOURCE_DIR}/cmake/bundle_libraries.cmake
    DEPENDS gpu_all mgplan_cuda
    VERBATIM)
endfunction()
